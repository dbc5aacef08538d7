// SPDX-License-Identifier: Apache-2.0

package arg_test

import (
	"math"
	"testing"
	"time"

	"margay.dev/cmd/internal/arg"
)

func TestParseStart(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]arg.Start{
		"latest":                    {Kind: arg.Latest},
		"earliest":                  {Kind: arg.Earliest},
		"0":                         {Kind: arg.AtOffset},
		"42":                        {Kind: arg.AtOffset, Offset: 42},
		"18446744073709551615":      {Kind: arg.AtOffset, Offset: math.MaxUint64},
		"-15m":                      {Kind: arg.AtTime, Time: now.Add(-15 * time.Minute)},
		"-1d":                       {Kind: arg.AtTime, Time: now.Add(-24 * time.Hour)},
		"2026-01-31T12:00:00Z":      {Kind: arg.AtTime, Time: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)},
		"2026-01-31T12:00:00.5Z":    {Kind: arg.AtTime, Time: time.Date(2026, 1, 31, 12, 0, 0, 5e8, time.UTC)},
		"2026-01-31T12:00:00+02:00": {Kind: arg.AtTime, Time: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)},
	} {
		got, err := arg.ParseStart(in, now)
		if err != nil || got.Kind != want.Kind || got.Offset != want.Offset || !got.Time.Equal(want.Time) {
			t.Errorf("ParseStart(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-", "-5", "first", "Latest", "18446744073709551616", "2026-01-31", "15m", "--15m", "+4", "1_000"} {
		if got, err := arg.ParseStart(in, now); err == nil {
			t.Errorf("ParseStart(%q) = %+v, want an error", in, got)
		}
	}
}
