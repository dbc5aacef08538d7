// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"margay.dev/wire/code"
)

func split(r io.Reader, most int) (lines []string, err error) {
	s := newSplitter(r, most)
	for {
		line, err := s.next()
		if err != nil {
			return lines, err
		}
		if line == nil {
			return lines, errors.New("an empty line is a nil value, which would be a tombstone")
		}
		lines = append(lines, string(line))
	}
}

func TestSplit(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for in, want := range map[string][]string{
		"":                 nil,
		"\n":               {""},
		"a":                {"a"},
		"a\n":              {"a"},
		"a\n\n":            {"a", ""},
		"\n\na":            {"", "", "a"},
		"a\r\nb":           {"a\r", "b"},
		"a\vb\fc\u2028d\n": {"a\vb\fc\u2028d"},
		"\x00\xff\n":       {"\x00\xff"},
		long + "\n" + long: {long, long},
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.DataErrReader(strings.NewReader(in)), iotest.HalfReader(strings.NewReader(in))} {
			got, err := split(r, 1<<20)
			if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
				t.Errorf("split(%.20q) = %.20q, %v; want %.20q", in, got, err, want)
			}
		}
	}
}

func TestSplitBoundsALine(t *testing.T) {
	got, err := split(strings.NewReader("1234\n12345\n"), 4)
	if !slices.Equal(got, []string{"1234"}) || !errors.Is(err, code.TooLarge) {
		t.Errorf("got %q, %v; want the first line and too_large", got, err)
	}
	// An endless line must not be gathered first and refused afterwards.
	if _, err := split(endless{}, 1<<20); !errors.Is(err, code.TooLarge) {
		t.Errorf("endless line: %v, want too_large", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestSplitReportsAReadError(t *testing.T) {
	broken := errors.New("disk on fire")
	got, err := split(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), 100)
	if !slices.Equal(got, []string{"a"}) || !errors.Is(err, broken) {
		t.Errorf("got %q, %v; half a line must not become a record", got, err)
	}
}
