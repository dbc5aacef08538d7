// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"slices"
	"sync"
	"testing"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// client is the other end of a watch lane. It does with what comes what a client must, and keeps all of it.
type client struct {
	t       testing.TB
	mu      sync.Mutex
	gate    chan struct{} // while it is there, nothing is read
	waits   int           // writes that wait for the gate
	deaf    bool          // what is read is not looked at
	refused map[uint64]*code.Error
	watches map[uint64]*folded
	live    []change // as they came
	gaps    []wire.Gap
	ends    []wire.WatchEnd
	sizes   []int // of frames
}

// change is one record.
type change struct {
	key     string
	value   string
	null    bool
	expired bool
	offset  uint64
}

// folded is what a watch has come to.
type folded struct {
	filter  wire.Filter
	watched *wire.Watched
	done    bool
	ended   bool
	entries []change // that came before WatchDone
	held    []change
	events  []change // that the application is told of, in order
	version map[string]uint64
	is      map[string]string
}

func newClient(t testing.TB) *client {
	return &client{t: t, refused: map[uint64]*code.Error{}, watches: map[uint64]*folded{}}
}

// expect makes a watch known before it is asked for.
func (c *client) expect(f *wire.Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[f.ID] = &folded{filter: f.Filter, version: map[string]uint64{}, is: map[string]string{}}
}

func (c *client) refuse(corr uint64, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[corr] = code.From(why)
}

// Write takes what the broker sends.
func (c *client) Write(parts ...[]byte) error {
	c.mu.Lock()
	if gate := c.gate; gate != nil {
		c.waits++
		c.mu.Unlock()
		<-gate
		c.mu.Lock()
		c.waits--
	}
	defer c.mu.Unlock()
	if c.deaf {
		return nil
	}
	for rest := slices.Concat(parts...); len(rest) > 0; {
		h, err := wire.ParseHeader([wire.HeaderSize]byte(rest))
		if err != nil {
			c.t.Error(err)
			return err
		}
		c.sizes = append(c.sizes, int(h.Size))
		c.frame(h, rest[wire.HeaderSize:][:h.Size])
		rest = rest[wire.HeaderSize+int(h.Size):]
	}
	return nil
}

func (c *client) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
}

func (c *client) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate != nil {
		close(c.gate)
		c.gate = nil
	}
}

func parsed[F wire.Frame](c *client, h wire.Header, body []byte, f F) F {
	if err := wire.ParseFrame(h, f, body); err != nil {
		c.t.Errorf("%v: %v", h.Type, err)
	}
	return f
}

func (c *client) frame(h wire.Header, body []byte) {
	switch h.Type {
	case wire.TypeWatched:
		f := parsed(c, h, body, &wire.Watched{})
		if x := c.of(f.ID); x.watched != nil {
			c.t.Errorf("watch %d is answered twice", f.ID)
		} else if h.Corr != f.ID {
			c.t.Errorf("watch %d is answered as %d", f.ID, h.Corr)
		} else {
			x.watched = f
		}
	case wire.TypeWatchEntries:
		f := parsed(c, h, body, &wire.WatchEntries{})
		x := c.of(f.ID)
		if x.done {
			c.t.Errorf("watch %d gets entries behind its done", f.ID)
		}
		for i := range f.Entries {
			e := &f.Entries[i]
			y := change{string(e.Key), string(e.Value), e.Kind != wire.EntryValue, e.Kind == wire.EntryExpired, e.Offset}
			x.entries = append(x.entries, y)
			x.apply(y)
		}
	case wire.TypeWatchDone:
		f := parsed(c, h, body, &wire.WatchDone{})
		x := c.of(f.ID)
		if x.done || x.watched == nil || x.watched.From != f.From {
			c.t.Errorf("watch %d is done with %+v", f.ID, f)
		}
		x.done = true
		for _, y := range x.held {
			x.apply(y)
		}
		x.held = nil
	case wire.TypeWatchEnd:
		f := parsed(c, h, body, &wire.WatchEnd{})
		c.ends = append(c.ends, *f)
		for id, x := range c.watches {
			if id == f.ID || f.ID == 0 && x.watched != nil && x.watched.Shard == f.Shard {
				x.ended = true
			}
		}
	case wire.TypeGap:
		c.gaps = append(c.gaps, *parsed(c, h, body, &wire.Gap{}))
	case wire.TypeProgress:
		parsed(c, h, body, &wire.Progress{})
	default:
		c.records(h, body)
	}
}

// of is a watch that has not ended: nothing comes behind the end.
func (c *client) of(id uint64) *folded {
	x := c.watches[id]
	if x == nil || x.ended {
		c.t.Errorf("something came for watch %d, which is unknown or has ended", id)
		return &folded{version: map[string]uint64{}, is: map[string]string{}}
	}
	return x
}

// records takes what came live.
func (c *client) records(h wire.Header, body []byte) {
	if h.Type == wire.TypeDeliverSlice {
		s, err := batch.CheckSlice(parsed(c, h, body, &wire.DeliverSlice{}).Slices)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.each(s.Records(), s.IsExpired())
		return
	}
	for rest := parsed(c, h, body, &wire.Deliver{}).Batch; len(rest) > 0; {
		b, err := batch.CheckStored(rest)
		if err != nil {
			c.t.Error(err)
			return
		}
		rest = rest[b.Size():]
		c.each(b.Records(), b.IsExpired())
	}
}

// walk goes through records of a batch or of a slice.
type walk interface {
	Next(r *batch.Record) (bool, error)
	Offset() uint64
}

func (c *client) each(it walk, expired bool) {
	for {
		var r batch.Record
		ok, err := it.Next(&r)
		if err != nil {
			c.t.Error(err)
		}
		if !ok || err != nil {
			return
		}
		if r.Key == nil {
			continue
		}
		y := change{key: string(r.Key), value: string(r.Value), null: r.Value == nil, expired: expired, offset: it.Offset()}
		c.live = append(c.live, y)
		for _, x := range c.watches {
			switch {
			case x.ended || x.watched == nil || y.offset < x.watched.From || !x.filter.Matches(r.Key):
			case !x.done:
				x.held = append(x.held, y)
			default:
				x.apply(y)
			}
		}
	}
}

// apply folds a change in, unless something newer of its key is known.
func (x *folded) apply(y change) {
	if x.version[y.key] > y.offset {
		return
	}
	x.version[y.key] = y.offset + 1
	x.events = append(x.events, y)
	if y.null {
		delete(x.is, y.key)
	} else {
		x.is[y.key] = y.value
	}
}
