// SPDX-License-Identifier: Apache-2.0

// Package disk measures what the file system gives to who appends and flushes, with no log around it; it writes below the
// directory that it is given only.
package disk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"margay.dev/bench/internal/journal"
)

// Measured is what a run wrote.
type Measured struct {
	Appends, Bytes int64
	Took           time.Duration
	// Flushes are how long each append and its flush took, sorted.
	Flushes []time.Duration
}

// Flushed appends size bytes and flushes them, again and again for d, to a file for each of some writers; with zeroed, into
// space that zeros were written to.
func Flushed(ctx context.Context, dir string, writers, size int, zeroed bool, d time.Duration) (Measured, error) {
	each := make([]Measured, writers)
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range each {
		g.Go(func() (err error) {
			each[i], err = flushed(ctx, dir, fmt.Sprintf("writer-%d", i), size, zeroed, d)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Measured{}, fmt.Errorf("append and flush in %s: %w", dir, err)
	}
	m := Measured{Took: time.Since(begin)}
	for _, e := range each {
		m.Appends, m.Bytes, m.Flushes = m.Appends+e.Appends, m.Bytes+e.Bytes, append(m.Flushes, e.Flushes...)
	}
	slices.Sort(m.Flushes)
	return m, nil
}

func flushed(ctx context.Context, dir, name string, size int, zeroed bool, d time.Duration) (m Measured, err error) {
	j, err := journal.Create(dir, name)
	if err != nil {
		return m, err
	}
	j.ZeroAhead = zeroed
	p := filled(size)
	for last, end := time.Now(), time.Now().Add(d); last.Before(end) && ctx.Err() == nil; {
		if err = j.Append(p); err == nil {
			err = j.Sync()
		}
		if err != nil {
			break
		}
		now := time.Now()
		m.Flushes = append(m.Flushes, now.Sub(last))
		last = now
		m.Appends++
		m.Bytes += int64(size)
	}
	if cerr := j.Close(); err == nil {
		err = cerr
	}
	return m, err
}

// flushEvery is how much is written between two flushes when the flush is not what is measured: a page cache that is flushed
// once, at the end, would be measured in its place.
const flushEvery = 32 << 20

// Sequential writes size bytes at a time for d, with a flush now and then and one at the end.
func Sequential(ctx context.Context, dir string, size int, d time.Duration) (m Measured, err error) {
	j, err := journal.Create(dir, "sequential")
	if err != nil {
		return m, err
	}
	p, begin, open := filled(size), time.Now(), 0
	for time.Since(begin) < d && ctx.Err() == nil {
		if err = j.Append(p); err != nil {
			break
		}
		m.Appends++
		m.Bytes += int64(size)
		if open += size; open >= flushEvery {
			open = 0
			if err = j.Sync(); err != nil {
				break
			}
		}
	}
	if cerr := j.Close(); err == nil {
		err = cerr
	}
	m.Took = time.Since(begin)
	return m, err
}

// filled is bytes that no layer below can leave out as a hole.
func filled(size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}
