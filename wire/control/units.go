// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a span of time as documents and flags write it: Go's notation, with days ("7d", "1d12h", "100ms").
type Duration time.Duration

// day has no daylight saving: a retention of 1d is 24 hours.
const day = 24 * time.Hour

// ParseDuration reads a span that is not negative.
func ParseDuration(s string) (time.Duration, error) {
	fail := func(why string) (time.Duration, error) {
		return 0, fmt.Errorf("duration %.40q: %s, for example 30s, 12h or 7d", s, why)
	}
	rest := s
	var days time.Duration
	if d, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(d, 10, 31)
		if err != nil {
			return fail("days are a whole number")
		}
		if n > uint64(math.MaxInt64/day) {
			return fail("too long")
		}
		days = time.Duration(int64(n) * int64(day))
		if rest = after; rest == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(rest)
	switch {
	case err != nil:
		return fail("not a number with a unit")
	case d < 0 || strings.HasPrefix(rest, "-"):
		return fail("must not be negative")
	case days > math.MaxInt64-d:
		return fail("too long")
	}
	return days + d, nil
}

// String writes d as ParseDuration reads it, without units that are zero.
func (d Duration) String() string {
	t := time.Duration(d)
	if t == 0 {
		return "0s"
	}
	if t < 0 {
		return t.String() // only ever seen in a message about it
	}
	var b strings.Builder
	if t >= day {
		b.WriteString(strconv.FormatInt(int64(t/day), 10))
		b.WriteByte('d')
		t %= day
	}
	if t == 0 {
		return b.String()
	}
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	b.WriteString(s)
	return b.String()
}

// MarshalText makes Duration a string in JSON and YAML.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

var byteUnits = []struct {
	suffix string
	size   int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// ParseBytes reads a size: bytes, or a number with one of KiB, MiB, GiB, TiB, KB, MB, GB, TB.
func ParseBytes(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range byteUnits {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = strings.TrimSuffix(d, " "), u.size
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("size %.40q: not a whole number of bytes, for example 1048576, 64MiB or 10GiB", s)
	}
	return n * unit, nil
}

// FormatBytes writes a size in the largest binary unit that loses nothing.
func FormatBytes(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := byteUnits[i]; n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
