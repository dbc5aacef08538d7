// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Machine is where a run was made.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Memory     string `json:"memory"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	Go         string `json:"go"`
}

// ThisMachine describes the machine, and the file system that dir is on. What it cannot find out is called unknown.
func ThisMachine(dir string) Machine {
	m := Machine{
		CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Memory: "unknown", Kernel: runtime.GOOS, FileSystem: "unknown file system",
		Go: runtime.Version(),
	}
	if v := field("/proc/cpuinfo", "model name"); v != "" {
		m.CPU = v
	}
	if v := field("/proc/meminfo", "MemTotal"); v != "" {
		var kb int64
		if _, err := fmt.Sscan(v, &kb); err == nil {
			m.Memory = fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = "Linux " + strings.TrimSpace(string(b))
	}
	if v := fileSystem(dir); v != "" {
		m.FileSystem = v
	}
	return m
}

// field is the value of the first line of a file that begins with a name and a colon.
func field(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fileSystem is the type of the mount that is nearest above dir.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	b, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return ""
	}
	return nearestMount(string(b), dir)
}

func nearestMount(mounts, dir string) string {
	at, kind := "", ""
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 || len(f[1]) < len(at) {
			continue
		}
		if dir == f[1] || strings.HasPrefix(dir, strings.TrimSuffix(f[1], "/")+"/") {
			at, kind = f[1], f[2]
		}
	}
	return kind
}
