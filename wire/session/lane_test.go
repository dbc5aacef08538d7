// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// piped is a stream in memory: what is written can be read again, in pieces as pace says. It shows that
// a lane needs nothing of QUIC.
type piped struct {
	data chan []byte
	rest []byte
	pace func(n int) int
	done chan struct{}
}

func newPiped(pace func(int) int) *piped {
	return &piped{data: make(chan []byte, 64), done: make(chan struct{}), pace: pace}
}

func (p *piped) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		chunk, ok := <-p.data
		if !ok {
			return 0, io.EOF
		}
		p.rest = chunk
	}
	n := copy(b[:min(len(b), p.pace(len(p.rest)))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (p *piped) Write(b []byte, _ bool) (int, error) {
	if len(b) > 0 {
		p.data <- bytes.Clone(b)
	}
	return len(b), nil
}

func (p *piped) SetReadDeadline(time.Time) error { return nil }
func (p *piped) Finish() error                   { close(p.data); return nil }
func (p *piped) CancelRead(code.Code)            {}
func (p *piped) Cancel(code.Code)                {}
func (p *piped) Release()                        {}
func (p *piped) Done() <-chan struct{}           { return p.done }
func (p *piped) abort(code.Code, string)         {}

func whole(n int) int { return n }

func pipedLane(p *piped, maxFrame uint32) *Lane {
	s := newShared(Config{}.WithDefaults(), p)
	s.maxFrame.Store(maxFrame)
	return newLane(s, p)
}

// endless is a stream that reads one frame over and over and swallows what is written.
type endless struct {
	piped
	frame []byte
	at    int
}

func (e *endless) Read(b []byte) (n int, _ error) {
	for n < len(b) {
		k := copy(b[n:], e.frame[e.at:])
		n, e.at = n+k, (e.at+k)%len(e.frame)
	}
	return n, nil
}

func (e *endless) Write(b []byte, _ bool) (int, error) { return len(b), nil }
func (e *endless) Finish() error                       { return nil }

func TestFramesDoNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector pools lose things on purpose")
	}
	e := &endless{piped: *newPiped(whole), frame: wire.AppendFrame(nil, 7, &wire.Auth{Token: string(make([]byte, 200))})}
	l := newLane(newShared(Config{}.WithDefaults(), e), e)
	defer func() { _ = l.Close() }()
	body := make([]byte, 0, 1024)
	ack := &wire.Published{Count: 1}
	frame := wire.AppendFrame(nil, 1, ack)
	step := func() {
		if _, err := l.ReadHeader(); err != nil {
			t.Fatal(err)
		}
		var err error
		if body, err = l.AppendBody(body[:0]); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{l.SendFrame(1, ack), l.Send(frame, frame), l.Write(frame, frame)} {
			if err != nil && !errors.Is(err, ErrLaneFull) {
				t.Fatal(err)
			}
		}
	}
	for range 1000 { // the pools fill
		step()
	}
	// A collection may empty the pools in between: allow for a few in a thousand.
	if n := testing.AllocsPerRun(2000, step); n > 0.05 {
		t.Errorf("%v allocations per frame read and written", n)
	}
}

// TestSendCoalesces: what gathers while the writer writes goes out in one piece.
func TestSendCoalesces(t *testing.T) {
	p := newPiped(whole)
	p.data = make(chan []byte) // the writer waits in its first write
	l := pipedLane(p, wire.MaxFrame)
	for i := range 100 {
		if err := l.SendFrame(uint64(i), &wire.Ping{}); err != nil {
			t.Fatal(err)
		}
	}
	writes, frames := 0, 0
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	for chunk := range p.data {
		writes++
		frames += len(chunk) / wire.HeaderSize
	}
	if err := <-closed; err != nil || frames != 100 || writes > 2 {
		t.Errorf("%d frames in %d writes, %v", frames, writes, err)
	}
}

// TestBodyPastItsEnd: asking for more than the frame has is the caller's mistake and reads nothing.
func TestBodyPastItsEnd(t *testing.T) {
	p := newPiped(whole)
	l := pipedLane(p, wire.MaxFrame)
	if err := l.Send(wire.AppendFrame(nil, 1, &wire.Lookup{Name: "abc"}), wire.AppendFrame(nil, 2, &wire.Ping{})); err != nil {
		t.Fatal(err)
	}
	h, err := l.ReadHeader()
	if err != nil || h.Size != 4 {
		t.Fatal(h, err)
	}
	wantCode(t, "read", l.ReadBody(make([]byte, 5)), code.Internal)
	wantCode(t, "skip", l.Skip(5), code.Internal)
	part := make([]byte, 2)
	if err := l.ReadBody(part); err != nil || !bytes.Equal(part, []byte("\x03a")) {
		t.Errorf("%q, %v", part, err)
	}
	// What was not read is passed over.
	if h, err := l.ReadHeader(); err != nil || h.Corr != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	_ = l.Close()
}

// FuzzLane feeds a lane any bytes in any pieces: it never panics, never holds more than a small multiple
// of what has come, and yields the same frames whatever the pieces. (Fuzz with -fuzzminimizetime 10x: pools
// make coverage unsteady, and minimizing never ends.)
func FuzzLane(f *testing.F) {
	good := wire.AppendFrame(nil, 1, &wire.Lookup{Name: "a/b/c"})
	good = wire.AppendFrame(good, 2, &wire.Auth{Token: string(make([]byte, 5000))})
	f.Add(good, byte(1), uint16(3))
	f.Add(append(good, 'M', 'G', 20, 0, 0xff, 0xff, 0xff, 0), byte(2), uint16(100))
	f.Fuzz(func(t *testing.T, data []byte, how byte, piece uint16) {
		type frame struct {
			wire.Header
			body string
		}
		read := func(pace func(int) int, how byte) (got []frame) {
			p := newPiped(pace)
			p.data <- data
			close(p.data)
			l := pipedLane(p, wire.MaxFrame)
			for {
				h, err := l.ReadHeader()
				if err != nil {
					return got
				}
				var body []byte
				if how%2 == 0 && h.Size < 1<<16 {
					body = make([]byte, h.Size)
					err = l.ReadBody(body)
				} else {
					body, err = l.AppendBody(nil)
				}
				if err != nil {
					return got
				}
				if cap(body) > max(firstBody, 5*len(data)) {
					t.Fatalf("%d bytes held for %d received", cap(body), len(data))
				}
				got = append(got, frame{h, string(body)})
			}
		}
		a := read(whole, 1)
		b := read(func(n int) int { return min(n, int(piece)+1) }, how)
		if len(a) != len(b) {
			t.Fatalf("%d frames, or %d", len(a), len(b))
		}
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("frame %d differs", i)
			}
		}
	})
}
