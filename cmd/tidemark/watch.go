package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"tidemark/internal/clock"
	"tidemark/internal/process"
)

// watchFlags are those of lists that change while one looks.
type watchFlags struct {
	Watch time.Duration `help:"Print it again and again, this far apart, until interrupted." placeholder:"DURATION"`
}

// clear makes a terminal empty.
const clear = "\033[H\033[2J"

// watchEveryMin keeps a watch from being a load.
const watchEveryMin = 100 * time.Millisecond

// show prints once, or again and again until the command is interrupted.
func (f watchFlags) show(ctx context.Context, streams process.Streams, signals *process.Signals, c clock.Clock, print func(context.Context) error) error {
	if f.Watch == 0 {
		return print(ctx)
	}
	if f.Watch < watchEveryMin {
		return process.Usagef("--watch %v: want at least %v", f.Watch, watchEveryMin)
	}
	ctx, stop := process.UntilDrained(ctx, signals.Drain)
	defer stop()
	out, isFile := streams.Out.(*os.File)
	terminal := isFile && term.IsTerminal(int(out.Fd()))
	for {
		if terminal {
			fmt.Fprint(streams.Out, clear)
		}
		err := print(ctx)
		if err == nil {
			err = c.Sleep(ctx, f.Watch)
		}
		if errors.Is(context.Cause(ctx), process.ErrDrained) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
