package process

import (
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
)

// LogFlags choose what is logged and how.
type LogFlags struct {
	LogLevel  string `help:"Least severe level that is logged: trace, debug, info, warn or error." enum:"trace,debug,info,warn,error" default:"info" env:"TIDEMARK_LOG_LEVEL" placeholder:"LEVEL"`
	LogFormat string `help:"How log lines look: text for people, json for programs." enum:"text,json" default:"text" env:"TIDEMARK_LOG_FORMAT" placeholder:"FORMAT"`
}

// Logger makes the root logger of a process.
func (f LogFlags) Logger(name string, out io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       name,
		Level:      hclog.LevelFromString(f.LogLevel),
		JSONFormat: f.LogFormat == "json",
		Output:     out,
	})
}

// DefaultID is this process's identity when none is given: unique on its host while it lives.
func DefaultID(kind string) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%s-%d", kind, host, os.Getpid())
}
