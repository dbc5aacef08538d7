// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func reading(cpu, flush, ping int) Reading {
	return Reading{time.Duration(cpu), time.Duration(flush), time.Duration(ping)}
}

func TestStormIsWhatIsFarFromTheUsual(t *testing.T) {
	var j Judge
	if j.Stormy(reading(1e6, 1e6, 1e6)) {
		t.Error("a storm, with nothing to compare it with")
	}
	for i := range 9 {
		j.Add(reading(100+i, 200-i, 300+i))
	}
	j.Add(reading(1000, 2000, 3000)) // a storm does not move the median
	for name, c := range map[string]struct {
		r    Reading
		want bool
	}{
		"as usual":            {reading(104, 195, 304), false},
		"fast":                {reading(10, 20, 30), false},
		"slow, within bounds": {reading(150, 280, 450), false},
		"slow to compute":     {reading(170, 195, 304), true},
		"slow to flush":       {reading(104, 320, 304), true},
		"slow to answer":      {reading(104, 195, 480), true},
	} {
		if got := j.Stormy(c.r); got != c.want {
			t.Errorf("%s: %v, %.2f off", name, got, j.Off(c.r))
		}
	}
}

func TestAStormThatLastsBecomesTheUsual(t *testing.T) {
	var j Judge
	for range 3 * remembered {
		j.Add(reading(100, 100, 100))
	}
	slow := reading(170, 170, 170)
	n := 0
	for ; j.Stormy(slow); n++ {
		if n > remembered {
			t.Fatal("the judge does not get used to a machine that has become slower")
		}
		j.Add(slow)
	}
	if n < remembered/4 {
		t.Errorf("after %d readings a storm was taken for the usual", n)
	}
}

func TestTake(t *testing.T) {
	name := filepath.Join(t.TempDir(), "probe")
	p, err := NewTaker(name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := p.Take()
		if err != nil || r.CPU <= 0 || r.Flush <= 0 || r.Ping <= 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
