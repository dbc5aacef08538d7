// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is the unit of /proc, fixed by Linux for all it shows to programs: CPU is told in steps of 10 ms.
const ticksPerSecond = 100

func ownUsage() usage {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return usage{}
	}
	return usage{cpu: float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9}
}

func processUsage(pid int) (usage, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, false
	}
	return parseStat(stat, int64(os.Getpagesize()))
}

// parseStat reads utime, stime and rss, fields 14, 15 and 24. The second is the name, in parentheses, and may hold anything.
func parseStat(stat []byte, page int64) (usage, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return usage{}, false
	}
	var n [3]int64
	for i, at := range []int{14, 15, 24} {
		v, err := strconv.ParseInt(string(fields[at-3]), 10, 64)
		if err != nil {
			return usage{}, false
		}
		n[i] = v
	}
	return usage{cpu: float64(n[0]+n[1]) / ticksPerSecond, rss: n[2] * page}, true
}
