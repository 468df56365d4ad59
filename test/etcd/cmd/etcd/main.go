// Command etcd is etcd itself, built from the module that the tests are built with, so that a test can run members as
// processes of their own, kill them, and need nothing installed. It ends when its standard input does, so that no member
// outlives its test.
package main

import (
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	go func() {
		// An error ends the input as well.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	etcdmain.Main(os.Args)
}
