// SPDX-License-Identifier: Apache-2.0

package arg

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"margay.dev/wire/control"
)

// StartKind says which of a Start's fields counts.
type StartKind uint8

// The four ways to begin reading.
const (
	Latest StartKind = iota
	Earliest
	AtOffset
	AtTime
)

// Start is where a reader begins.
type Start struct {
	Kind   StartKind
	Offset uint64
	Time   time.Time
}

// ParseStart reads the value of --from: "earliest", "latest", an offset (a whole number), an RFC 3339
// time, or a negative duration such as "-15m" that counts back from now.
//
// A number is always an offset, never a Unix time: the two cannot be told apart, and reading one as
// the other would silently begin at the wrong place.
func ParseStart(s string, now time.Time) (Start, error) {
	switch s {
	case "latest":
		return Start{Kind: Latest}, nil
	case "earliest":
		return Start{Kind: Earliest}, nil
	}
	if allDigits(s) {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return Start{}, fmt.Errorf("start %q: larger than any offset", s)
		}
		return Start{Kind: AtOffset, Offset: n}, nil
	}
	if back, ok := strings.CutPrefix(s, "-"); ok {
		d, err := control.ParseDuration(back)
		if err != nil {
			return Start{}, fmt.Errorf("start %q: want a duration after the minus, such as -15m or -7d", s)
		}
		return Start{Kind: AtTime, Time: now.Add(-d)}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return Start{}, fmt.Errorf("start %q: want earliest, latest, an offset, a time such as 2026-01-31T12:00:00Z, or -15m", s)
	}
	return Start{Kind: AtTime, Time: t}, nil
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
