package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit statuses of every binary.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// UsageError is a command line that parses but cannot be meant; it ends the process with ExitUsage.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{Message: fmt.Sprintf(format, args...)}
}

// Streams are the three standard streams, injected so that a command can be run inside a test.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Command describes one binary.
type Command struct {
	Name        string // as the user types it
	Description string // the first paragraphs of --help
	Listen      string // default of --listen, if the binary has it
}

// Main parses the command line into cli, a pointer to the binary's one flag struct, and runs it: cli itself if it
// has a Run method, else the selected subcommand. It returns the exit status. Run methods may take, in any order, a
// context.Context, a Streams and a *Signals.
//
// The context is cancelled by the second SIGTERM or SIGINT; the first one closes Signals.Drain.
func Main(cmd Command, cli any, args []string, streams Streams) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals, stop := watchSignals(cancel)
	defer stop()

	status := -1
	parser, err := kong.New(cli,
		kong.Name(cmd.Name),
		kong.Description(cmd.Description),
		kong.Vars{"version": Version, "listen": cmd.Listen},
		kong.Writers(streams.Out, streams.Err),
		kong.Exit(func(code int) { status = code; panic(exited{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams, signals),
	)
	if err != nil {
		fmt.Fprintf(streams.Err, "%s: %v\n", cmd.Name, err)
		return ExitFailed
	}
	return run(parser, cmd, args, streams, &status)
}

// exited unwinds the stack after --help or --version, which kong ends by calling its Exit function.
type exited struct{}

func run(parser *kong.Kong, cmd Command, args []string, streams Streams, status *int) (code int) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exited); !ok {
				panic(r)
			}
			code = *status
		}
	}()
	selected, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(streams.Err, "%s: %v; see %s --help\n", cmd.Name, err, helpFor(cmd.Name, err))
		return ExitUsage
	}
	err = selected.Run()
	if err == nil {
		return ExitDone
	}
	fmt.Fprintf(streams.Err, "%s: %s\n", cmd.Name, oneLine(err))
	if usage := (*UsageError)(nil); errors.As(err, &usage) {
		return ExitUsage
	}
	if coded := (interface{ ExitCode() int })(nil); errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return ExitFailed
}

// helpFor names the command whose --help covers a parse error: the deepest subcommand that was recognised.
func helpFor(name string, err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			return name + " " + strings.TrimSpace(node.Path())
		}
	}
	return name
}

// oneLine keeps an error on one line: joined errors are separated by semicolons.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// Signals tells a long-running command that the operator asked it to stop.
type Signals struct {
	// Drain is closed by the first SIGTERM or SIGINT: take no new work, finish what runs, then return.
	Drain <-chan struct{}
}

// errInterrupted is the cause of the context that a second signal cancels.
var errInterrupted = errors.New("interrupted by a second signal")

func watchSignals(cancel context.CancelCauseFunc) (*Signals, func()) {
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	drain, quit, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for first := true; ; first = false {
			select {
			case <-received:
			case <-quit:
				return
			}
			if !first {
				cancel(errInterrupted)
				return
			}
			close(drain)
		}
	}()
	return &Signals{Drain: drain}, func() {
		signal.Stop(received)
		close(quit)
		<-done
	}
}
