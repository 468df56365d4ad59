//go:build !linux

package objstore

import "os"

func startWriteback(*os.File) {}
