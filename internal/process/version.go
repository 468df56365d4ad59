package process

// Version is the build's version, set by the linker; "unknown" in builds that do not go through the Makefile.
var Version = "unknown"
