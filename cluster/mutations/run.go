// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

type verdict string

const (
	caught   verdict = "caught"
	hung     verdict = "caught: it hangs"
	survived verdict = "SURVIVED"
	stale    verdict = "STALE"
	broken   verdict = "DOES NOT COMPILE"
	odd      verdict = "RED FOR ANOTHER REASON"
)

type result struct {
	name    string
	verdict verdict
	by      string
	took    time.Duration
	detail  string // for whoever has to look at it
}

// runAll finds out that every catcher is green on the code as it is, and then what each says of its mutation.
func runAll(ctx context.Context, root string, all []mutation, o options) ([]result, error) {
	results := make([]result, len(all))
	next := make(chan int, len(all))
	for i := range all {
		next <- i
	}
	close(next)
	base, err := newScratch(ctx, root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = base.remove() }()
	if err := base.baseline(ctx, all, o); err != nil {
		return nil, err
	}
	var workers sync.WaitGroup
	faults := make([]error, max(o.parallel, 1))
	var printing sync.Mutex
	for w := range faults {
		workers.Go(func() {
			s := base
			if w > 0 {
				if s, faults[w] = newScratch(ctx, root); faults[w] != nil {
					return
				}
				defer func() { _ = s.remove() }()
			}
			for i := range next {
				if ctx.Err() != nil {
					faults[w] = ctx.Err()
					return
				}
				results[i] = s.try(ctx, &all[i], o)
				printing.Lock()
				_, _ = fmt.Fprintf(os.Stderr, "%s: %s\n", results[i].name, results[i].verdict)
				printing.Unlock()
			}
		})
	}
	workers.Wait()
	return results, errors.Join(faults...)
}

// baseline runs every catcher on the code as it is: one that is red anyway, or of which there is nothing, says nothing.
func (s *scratch) baseline(ctx context.Context, all []mutation, o options) error {
	tests := map[string][]string{}
	seeds := 0
	for _, m := range all {
		if m.caught.seeds > 0 {
			seeds = max(seeds, m.caught.seeds)
		} else if !slices.Contains(tests[m.caught.folder], m.caught.test) {
			tests[m.caught.folder] = append(tests[m.caught.folder], m.caught.test)
		}
	}
	var errs []error
	for folder, names := range tests {
		_, _ = fmt.Fprintf(os.Stderr, "unbroken: %s: %s\n", folder, strings.Join(names, " "))
		out, err := s.test(ctx, folder, strings.Join(names, "|"), time.Duration(len(names))*o.timeout)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is red without a mutation: %w\n%s", folder, err, tail(out)))
		}
		for _, name := range names {
			if err == nil && !strings.Contains(out, "--- PASS: "+name+" ") {
				errs = append(errs, fmt.Errorf("%s: %s did not run", folder, name))
			}
		}
	}
	if seeds > 0 {
		_, _ = fmt.Fprintf(os.Stderr, "unbroken: %s\n", bySimulation(seeds))
		if out, err := s.simulate(ctx, seeds, 5*o.timeout); err != nil {
			errs = append(errs, fmt.Errorf("the simulation is red without a mutation: %w\n%s", err, tail(out)))
		}
	}
	return errors.Join(errs...)
}

// try breaks the copy, asks the catcher, and mends it.
func (s *scratch) try(ctx context.Context, m *mutation, o options) (r result) {
	began := time.Now()
	r = result{name: m.name, by: m.caught.String()}
	defer func() { r.took = time.Since(began) }()
	mend, err := s.apply(m)
	defer func() {
		if err := mend(); err != nil {
			r.verdict, r.detail = odd, "the copy cannot be mended: "+err.Error()
		}
	}()
	if err != nil {
		r.verdict, r.detail = stale, err.Error()
		return r
	}
	var out string
	if m.caught.seeds > 0 {
		out, err = s.simulate(ctx, m.caught.seeds, o.timeout)
	} else {
		out, err = s.test(ctx, m.caught.folder, m.caught.test, o.timeout)
	}
	r.verdict = judge(m, out, err)
	if r.verdict != caught && r.verdict != hung {
		r.detail = m.why + "\n" + tail(out)
	}
	return r
}

var (
	errCompile = errors.New("does not compile")
	errHangs   = errors.New("does not end in time")
)

func judge(m *mutation, out string, err error) verdict {
	switch {
	case err == nil:
		return survived
	case errors.Is(err, errCompile):
		return broken
	case errors.Is(err, errHangs), strings.Contains(out, "panic: test timed out"):
		return hung
	case m.caught.seeds > 0, strings.Contains(out, "--- FAIL: "+m.caught.test),
		strings.Contains(out, "panic: "), strings.Contains(out, "fatal error: "):
		return caught
	default:
		return odd
	}
}

// test builds a folder's tests and runs those that match. The paths of the copy stay out of what is built, so that the
// build cache serves every copy.
func (s *scratch) test(ctx context.Context, folder, names string, timeout time.Duration) (string, error) {
	bin := filepath.Join(s.dir, "mutation.test")
	if out, err := s.build(ctx, "test", "-trimpath", "-c", "-o", bin, "./"+folder); err != nil {
		return out, err
	}
	return s.start(ctx, filepath.Join(s.dir, folder), timeout, bin,
		"-test.run", "^("+names+")$", "-test.v", "-test.short", "-test.count=1", "-test.timeout", timeout.String())
}

func (s *scratch) simulate(ctx context.Context, seeds int, timeout time.Duration) (string, error) {
	bin := filepath.Join(s.dir, "mutation-margay")
	if out, err := s.build(ctx, "build", "-trimpath", "-o", bin, "./cmd/margay"); err != nil {
		return out, err
	}
	return s.start(ctx, s.dir, timeout, bin, "sim", "--seeds", fmt.Sprint(seeds))
}

func (s *scratch) build(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%w: %w", errCompile, err)
	}
	return "", nil
}

// start runs a program; a test binary that does not heed its own timeout is ended a little later.
func (s *scratch) start(ctx context.Context, dir string, timeout time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		err = errHangs
	}
	return string(out), err
}

// tail is the end of an output, which is where a failure is.
func tail(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-15):], "\n    ")
}
