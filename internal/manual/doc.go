// Package manual writes what a shell and a reader of man pages need to know of a command line, from the same model by
// which kong parses it: completions for bash, zsh and fish, and one man page per command. What is completed and what is
// documented therefore cannot differ from what is accepted.
//
// Everything is a pure function of the model; hidden commands and flags are left out.
package manual
