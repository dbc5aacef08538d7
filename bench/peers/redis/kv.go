// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

// kv is the keys below one prefix, with SET and GET.
type kv struct{ *system }

var errNoWatch = errors.New("redis has no watch that tells of every value")

// Watch is refused: notifications of the key space name the key and not its value, and keep nothing for who is late.
func (kv) Watch(context.Context, load.Watcher) (io.Closer, error) { return nil, errNoWatch }

func (s kv) String() string {
	if s.spec.Workload == load.Get {
		return "redis " + s.version + ", GET"
	}
	return "redis " + s.version + ", SET"
}

// Close removes the keys, so many at a time.
func (s kv) Close() error {
	if s.keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	c, err := connect(ctx, s.addr)
	if err != nil {
		return err
	}
	const atOnce = 1000
	for from := 0; from < s.spec.Keys && err == nil; from += atOnce {
		args := []string{"UNLINK"}
		for i := from; i < min(from+atOnce, s.spec.Keys); i++ {
			args = append(args, s.key+load.Key(i, s.spec.KeySize))
		}
		_, err = c.do(args...)
	}
	return errors.Join(err, c.Close())
}

func (s kv) Putter(ctx context.Context, _ int, done load.Done) (load.Putter, error) {
	return s.commands(ctx, done, wholeSet)
}

func (s kv) Getter(ctx context.Context, _ int, done load.Done) (load.Getter, error) {
	return s.commands(ctx, done, s.wholeGet)
}

// commands are SETs or GETs over one connection: as many in a pipeline as may be under way, or, with one, a round trip each.
type commands struct {
	*conn
	prefix string
	size   int
	buf    []byte
	read   []byte // of a round trip
	whole  func(b []byte) (n int, failed, err error)
	done   load.Done
	under  *peer.UnderWay // nil with one under way
	ended  sync.WaitGroup
}

func (s kv) commands(ctx context.Context, done load.Done, whole func([]byte) (int, error, error)) (*commands, error) {
	conn, err := connect(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	c := &commands{conn: conn, prefix: s.key, read: make([]byte, 0, s.spec.Size+64), size: s.spec.Size, whole: whole, done: done}
	if s.spec.InFlight > 1 {
		c.under = peer.NewUnderWay(s.spec.InFlight, done)
		c.ended.Go(func() { c.under.Fail(c.readAnswers(c.under.Tell)) })
	}
	return c, nil
}

func (c *commands) Put(_ context.Context, key string, value []byte, at int64) error {
	if err := c.add(at); err != nil {
		return err
	}
	c.buf = c.appendKey(append(c.buf, "*3\r\n$3\r\nSET\r\n$"...), key)
	c.buf = strconv.AppendInt(append(c.buf, '$'), int64(len(value)), 10)
	c.buf = append(append(append(c.buf, "\r\n"...), value...), "\r\n"...)
	return c.send(at)
}

func (c *commands) Get(_ context.Context, key string, at int64) error {
	if err := c.add(at); err != nil {
		return err
	}
	c.buf = c.appendKey(append(c.buf, "*2\r\n$3\r\nGET\r\n$"...), key)
	return c.send(at)
}

// appendKey is what follows the $ of a key. Nothing here allocates.
func (c *commands) appendKey(b []byte, key string) []byte {
	b = append(strconv.AppendInt(b, int64(len(c.prefix)+len(key)), 10), "\r\n"...)
	return append(append(append(b, c.prefix...), key...), "\r\n"...)
}

func (c *commands) add(at int64) error {
	if c.under == nil {
		c.buf = c.buf[:0]
		return nil
	}
	return c.under.Add(at)
}

func (c *commands) send(at int64) error {
	if c.under == nil {
		c.done(at, 1, c.roundTrip())
		return nil
	}
	if len(c.buf) >= full {
		c.write()
	}
	return nil
}

// Flush sends what has gathered.
func (c *commands) Flush(context.Context) error { //nolint:unparam // load.Flusher; what fails is told of command by command
	c.write()
	return nil
}

func (c *commands) write() {
	if len(c.buf) == 0 || c.under == nil {
		return
	}
	if _, err := c.nc.Write(c.buf); err != nil {
		c.under.Fail(err)
	}
	c.buf = c.buf[:0]
}

var errOne = errors.New("the one answer")

// roundTrip waits for the answer in the goroutine that asked: nobody else has to wake up.
func (c *commands) roundTrip() error {
	if _, err := c.nc.Write(c.buf); err != nil {
		return err
	}
	var failed error
	err := c.readWith(c.read, func(b []byte) (int, error) {
		n, f, err := c.whole(b)
		if err == nil && n > 0 {
			failed, err = f, errOne
		}
		return n, err
	})
	if errors.Is(err, errOne) {
		return failed
	}
	return err
}

// readAnswers tells of all that one read brought at once, until the connection ends.
func (c *commands) readAnswers(tell func(n int, err error)) error {
	return c.readWith(make([]byte, 0, max(64<<10, 4*(c.size+64))), func(b []byte) (used int, err error) {
		good := 0
		for {
			n, failed, err := c.whole(b[used:])
			if n == 0 || failed != nil || err != nil {
				tell(good, nil)
				good = 0
			}
			if n == 0 || err != nil {
				return used, err
			}
			used += n
			if failed != nil {
				tell(1, failed)
				continue
			}
			good++
		}
	})
}

// readWith reads until use fails, which is shown all that was read and not used yet. Buf must hold an answer.
func (c *commands) readWith(buf []byte, use func(b []byte) (used int, err error)) error {
	for {
		n, err := c.nc.Read(buf[len(buf):cap(buf)])
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = errClosed
			}
			return err
		}
		buf = buf[:len(buf)+n]
		used, err := use(buf)
		if err != nil {
			return err
		}
		buf = buf[:copy(buf, buf[used:])]
		if len(buf) == cap(buf) {
			return errProtocol // longer than what was asked for can be
		}
	}
}

// wholeSet reads the answer to a SET at the start of b: its length, 0 when it is not whole, and the error it may be.
func wholeSet(b []byte) (n int, failed, err error) {
	end := bytes.IndexByte(b, '\n')
	switch {
	case end < 0:
		return 0, nil, nil
	case b[0] == '-':
		return end + 1, serverError(bytes.TrimRight(b[1:end], "\r")), nil
	case string(b[:end+1]) != "+OK\r\n":
		return 0, nil, errProtocol
	}
	return end + 1, nil, nil
}

// wholeGet is wholeSet for a GET, whose answer is a value of the run.
func (s kv) wholeGet(b []byte) (n int, failed, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return 0, nil, nil
	}
	line := bytes.TrimRight(b[min(1, end):end], "\r")
	if b[0] == '-' {
		return end + 1, serverError(line), nil
	}
	size, ok := number(line)
	switch {
	case b[0] != '$' || !ok || size > s.spec.Size:
		return 0, nil, errProtocol
	case size < 0:
		return end + 1, load.ValueError("a key", 0, s.spec.Size), nil
	}
	if n = end + 1 + size + len("\r\n"); n > len(b) {
		return 0, nil, nil
	}
	if size != s.spec.Size {
		failed = load.ValueError("a key", size, s.spec.Size)
	}
	return n, failed, nil
}

// Close ends the connection, and what is under way with it.
func (c *commands) Close() error {
	err := c.conn.Close()
	c.ended.Wait()
	return err
}
