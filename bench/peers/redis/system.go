// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/cluster/load"
)

// field is the one field of each entry.
const field = "v"

// closeWithin bounds what is done about the server when a run is over.
const closeWithin = time.Minute

// system is one stream of one server.
type system struct {
	addr    string
	spec    load.Spec
	key     string
	keep    bool
	version string
}

func drive(fs *flag.FlagSet) func(context.Context, string, load.Spec) (load.System, error) {
	place := fs.String("place", "", "stream, or prefix of keys, to use and to keep (default: one for the run, removed after it)")
	return func(ctx context.Context, addr string, spec load.Spec) (load.System, error) {
		s := &system{addr: addr, spec: spec, key: *place, keep: *place != ""}
		if s.key == "" {
			s.key = fmt.Sprintf("load-%d", time.Now().UnixNano())
		}
		info, err := s.ask(ctx, "INFO", "server")
		if err != nil {
			return nil, err
		}
		_, after, _ := strings.Cut(info.text, "redis_version:")
		s.version, _, _ = strings.Cut(after, "\r\n")
		if spec.Workload.HasKeys() {
			s.key += "/"
			return load.Keyed(kv{s}), nil
		}
		return s, nil
	}
}

// ask sends one command over a connection of its own.
func (s *system) ask(ctx context.Context, args ...string) (value, error) {
	c, err := connect(ctx, s.addr)
	if err != nil {
		return value{}, err
	}
	v, err := c.do(args...)
	return v, errors.Join(err, c.Close())
}

func (s *system) String() string {
	if s.spec.Workload == load.Sub || s.spec.Workload == load.Fanout {
		return "redis " + s.version + ", XREAD"
	}
	return "redis " + s.version + ", XADD"
}

func (s *system) Close() error {
	if s.keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	_, err := s.ask(ctx, "UNLINK", s.key)
	return err
}

// Subscribe reads the stream over a connection of its own, whatever sub.Connection says: one that waits for entries can
// do nothing else.
func (s *system) Subscribe(ctx context.Context, sub load.Subscription) (io.Closer, error) {
	from := "0-0"
	if !sub.Replay {
		last, err := s.ask(ctx, "XREVRANGE", s.key, "+", "-", "COUNT", "1")
		if err != nil {
			return nil, err
		}
		if len(last.list) > 0 && len(last.list[0].list) > 0 {
			from = last.list[0].list[0].text
		}
	}
	c, err := connect(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	r := &reader{conn: c, key: s.key, last: []byte(from), each: sub.Each, count: max(100, 256<<10/s.spec.Size)}
	r.ended.Go(func() {
		if err := r.run(); !r.closed.Load() {
			sub.Fail(err)
		}
	})
	return r, nil
}

// reader reads a stream with XREAD.
type reader struct {
	*conn
	key    string
	count  int
	each   func([]byte)
	last   []byte // id of the last entry
	buf    []byte
	closed atomic.Bool
	ended  sync.WaitGroup
}

func (r *reader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	err := r.conn.Close()
	r.ended.Wait()
	return err
}

// run reads until the connection ends.
func (r *reader) run() error {
	for {
		command := appendCommand(r.buf[:0], "XREAD", "COUNT", itoa(r.count), "BLOCK", "1000", "STREAMS", r.key, string(r.last))
		r.buf = command
		if _, err := r.nc.Write(command); err != nil {
			return err
		}
		if err := r.entries(); err != nil {
			return err
		}
	}
}

// entries reads an answer: a list of streams (one), each its key and a list of entries, each its id and a list of fields
// and values (one of each). No entry in time is a null.
func (r *reader) entries() error {
	streams, err := r.list()
	if err != nil || streams < 0 {
		return err
	}
	if _, err = r.list(); err != nil {
		return err
	}
	if _, err = r.text(nil); err != nil {
		return err
	}
	n, err := r.list()
	for range n {
		if err != nil {
			return err
		}
		err = r.entry()
	}
	return err
}

func (r *reader) entry() (err error) {
	if _, err = r.list(); err != nil {
		return err
	}
	if r.last, err = r.text(r.last); err != nil {
		return err
	}
	if _, err = r.list(); err != nil {
		return err
	}
	if r.buf, err = r.text(r.buf); err != nil {
		return err
	}
	if r.buf, err = r.text(r.buf); err != nil {
		return err
	}
	r.each(r.buf)
	return nil
}

// list reads the head of a list: how long it is.
func (r *reader) list() (int, error) {
	kind, n, _, err := r.head()
	if err == nil && kind != '*' {
		err = errProtocol
	}
	return n, err
}

// text reads a text into b.
func (r *reader) text(b []byte) ([]byte, error) {
	kind, n, _, err := r.head()
	if err != nil {
		return b, err
	}
	if kind != '$' || n < 0 {
		return b, errProtocol
	}
	if cap(b) < n {
		b = make([]byte, n)
	}
	b = b[:n]
	return b, r.bulk(b)
}
