// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"math"
	"strconv"
)

// Format writes a value as a table shows it: three digits that count, and the unit.
func Format(v float64, unit string) string {
	switch unit {
	case "":
		switch {
		case v >= 1e6:
			return digits(v/1e6) + " M"
		case v >= 1e3:
			return digits(v/1e3) + " k"
		}
		return digits(v)
	case "B":
		for _, u := range []struct {
			size float64
			name string
		}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
			if v >= u.size {
				return digits(v/u.size) + " " + u.name
			}
		}
		return digits(v) + " B"
	case "MB/s":
		return digits(v) + " MB/s"
	}
	switch {
	case v >= 1e6:
		return digits(v/1e6) + " M" + unit
	case v >= 1e3:
		return digits(v/1e3) + " k" + unit
	}
	return digits(v) + " " + unit
}

// digits shows three digits that count, and no fewer of a whole number.
func digits(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Sprint(v)
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', min(decimals, 4), 64)
}

// Ratio writes a ratio.
func Ratio(v float64) string { return digits(v) + "x" }

// Count writes a whole number with a comma between thousands.
func Count(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// Plural writes so many of something.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}
