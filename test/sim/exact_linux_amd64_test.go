package sim

import (
	"encoding/binary"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// The runtime hashes map keys with a key that it draws once, when the program starts, from 16 random bytes that the kernel
// leaves on the new program's stack. That decides in which order larger maps are walked, so a seed would repeat itself in
// one process and not in the next. The tests therefore run in a child in whose stack these bytes are always the same.

const (
	auxNull   = 0
	auxRandom = 25 // AT_RANDOM of getauxval(3)
	word      = 8
)

// inChild runs this program again, as said above, and returns its exit status. It is not ok where a program may not be
// traced; then nothing has run.
func inChild() (status int, ok bool) {
	if _, child := os.LookupEnv(childVariable); child {
		return 0, false
	}
	runtime.LockOSThread() // all of ptrace is one thread's, and the child ends with it
	defer runtime.UnlockOSThread()
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env: append(os.Environ(), childVariable+"=1"), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, false
	}
	var stop syscall.WaitStatus
	if _, err := syscall.Wait4(child.Pid, &stop, 0, nil); err != nil || !stop.Stopped() || !fixRandom(child.Pid) || syscall.PtraceDetach(child.Pid) != nil {
		_ = child.Kill()
		_, _ = child.Wait()
		return 0, false
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for s := range signals {
			_ = child.Signal(s) // of a test that takes too long, say
		}
	}()
	state, err := child.Wait()
	if err != nil {
		return 1, true
	}
	return max(state.ExitCode(), -state.ExitCode()), true
}

// fixRandom finds the random bytes of a program that is stopped at its first instruction: the stack holds the number of
// arguments, the arguments, a null, the environment, a null, and pairs of a tag and a value.
func fixRandom(pid int) bool {
	var registers syscall.PtraceRegs
	if syscall.PtraceGetRegs(pid, &registers) != nil {
		return false
	}
	at := uintptr(registers.Rsp)
	next := func() uint64 {
		var b [word]byte
		if _, err := syscall.PtracePeekData(pid, at, b[:]); err != nil {
			return auxNull
		}
		at += word
		return binary.LittleEndian.Uint64(b[:])
	}
	at += word * uintptr(next()+1)
	for next() != 0 {
	}
	for tag := next(); tag != auxNull; tag = next() {
		if value := next(); tag == auxRandom {
			_, err := syscall.PtracePokeData(pid, uintptr(value), []byte("always the same!"))
			return err == nil
		}
	}
	return false
}
