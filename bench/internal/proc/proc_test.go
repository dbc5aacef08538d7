// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestCommandNamesMayHoldAnything(t *testing.T) {
	const line = "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 150 25 7 7 20 0 4 0 100 1000 20"
	if got := parseCPU([]byte(line)); got != 1750*time.Millisecond {
		t.Errorf("CPU time %v", got)
	}
	if got := parseCPU([]byte("nothing")); got != 0 {
		t.Errorf("CPU time of nothing: %v", got)
	}
}

func TestOfThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	if RSS(os.Getpid()) < 1<<20 || RSS(0) < 1<<20 {
		t.Error("a Go program has more than a megabyte")
	}
	if RSS(1<<30) != 0 || CPU(1<<30) != 0 {
		t.Error("a process that is not there has something")
	}
}
