//go:build tools

// Package tools names what build.sh builds, so that `go mod tidy` keeps what it needs in go.mod and go.sum.
package tools

import (
	_ "gvisor.dev/gvisor/runsc"
	_ "gvisor.dev/gvisor/shim"
)
