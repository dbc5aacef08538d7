// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// config says how long and how hard a node is used.
type config struct {
	Minutes     float64 `json:"minutes"`
	MBPerMinute int     `json:"mb_per_minute"`
	LifeMinutes float64 `json:"life_minutes"`
	Dir         string  `json:"dir,omitempty"`
	Margay      string  `json:"-"` // the binary
	JSON        bool    `json:"-"`

	every time.Duration // between two samples
	row   time.Duration // that a line of the table stands for: a minute, less in tests of this command itself
}

func parse(args []string, stderr io.Writer) (*config, error) {
	c := &config{every: 2 * time.Second, row: time.Minute}
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Float64Var(&c.Minutes, "minutes", 10, "how long the node is used")
	f.IntVar(&c.MBPerMinute, "mb-per-minute", 1000, "megabytes that are published in a minute")
	f.Float64Var(&c.LifeMinutes, "life-minutes", 30, "after how long without a disturbance the node is disturbed again")
	f.StringVar(&c.Dir, "dir", "", "directory for the node's data, which must not exist; default a temporary one")
	f.StringVar(&c.Margay, "margay", "bin/margay", "the binary to run")
	f.BoolVar(&c.JSON, "json", false, "print the report as JSON")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("argument %q: want flags only", f.Arg(0))
	}
	return c, c.validate()
}

func (c *config) validate() error {
	var errs []error
	if c.Minutes <= 0 {
		errs = append(errs, fmt.Errorf("minutes %v: want more than 0", c.Minutes))
	}
	if c.MBPerMinute < 1 {
		errs = append(errs, fmt.Errorf("mb-per-minute %d: want at least 1", c.MBPerMinute))
	}
	if c.LifeMinutes <= 0 {
		errs = append(errs, fmt.Errorf("life-minutes %v: want more than 0", c.LifeMinutes))
	}
	return errors.Join(errs...)
}

func (c *config) duration() time.Duration { return time.Duration(c.Minutes * float64(time.Minute)) }
func (c *config) life() time.Duration     { return time.Duration(c.LifeMinutes * float64(time.Minute)) }
