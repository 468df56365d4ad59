//go:build go1.26 && !go1.27

#include "textflag.h"

// func thread() unsafe.Pointer
TEXT ·thread(SB), NOSPLIT, $0-8
	MOVQ (TLS), AX
	MOVQ 48(AX), AX // g.m
	MOVQ AX, ret+0(FP)
	RET
