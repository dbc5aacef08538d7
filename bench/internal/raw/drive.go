// SPDX-License-Identifier: Apache-2.0

package raw

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"margay.dev/bench/internal/transport"
)

// Measured is what a run moved.
type Measured struct {
	Messages, Bytes int64
	Took            time.Duration
	// Latencies of messages, sorted; absent one way.
	Latencies []time.Duration
}

// OneWay writes size bytes at a time for d, towards the server or, with down, towards us. It counts what has arrived.
func OneWay(ctx context.Context, c transport.Conn, size int, d time.Duration, down bool) (Measured, error) {
	s, err := c.OpenStream(ctx)
	if err != nil {
		return Measured{}, fmt.Errorf("open stream: %w", err)
	}
	begin := time.Now()
	var n int64
	if down {
		if _, err = s.Write(head(download, size, d)); err == nil {
			n, err = drain(s, make([]byte, 64<<10))
		}
	} else {
		n, err = up(s, size, d)
	}
	if err != nil {
		return Measured{}, fmt.Errorf("one way: %w", err)
	}
	return Measured{Messages: n / int64(size), Bytes: n, Took: time.Since(begin)}, nil
}

func up(s transport.Stream, size int, d time.Duration) (int64, error) {
	if _, err := s.Write(head(upload, size, d)); err != nil {
		return 0, err
	}
	chunk := make([]byte, size)
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := s.Write(chunk); err != nil {
			return 0, err
		}
	}
	if err := s.CloseWrite(); err != nil {
		return 0, err
	}
	var n [8]byte
	if _, err := io.ReadFull(s, n[:]); err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(n[:])), nil
}

// PingPong keeps a number of messages in flight on one stream for d. What one read brings is answered, on both sides, by one
// write.
func PingPong(ctx context.Context, c transport.Conn, size, inFlight int, d time.Duration) (Measured, error) {
	s, err := c.OpenStream(ctx)
	if err != nil {
		return Measured{}, fmt.Errorf("open stream: %w", err)
	}
	if _, err := s.Write(head(echo, size, d)); err != nil {
		return Measured{}, fmt.Errorf("ping-pong: %w", err)
	}
	m := Measured{}
	sent := make([]time.Time, inFlight) // a ring: message i was sent at sent[i%inFlight]
	out, in := make([]byte, inFlight*size), make([]byte, max(64<<10, size))
	begin := time.Now()
	for i := range sent {
		sent[i] = begin
	}
	if _, err := s.Write(out); err != nil {
		return m, fmt.Errorf("ping-pong: %w", err)
	}
	for part := 0; ; {
		n, err := s.Read(in)
		if err != nil {
			return m, fmt.Errorf("ping-pong: %w", err)
		}
		now := time.Now()
		part += n
		back := part / size
		part %= size
		for range back {
			at := &sent[m.Messages%int64(inFlight)]
			m.Latencies = append(m.Latencies, now.Sub(*at))
			*at = now
			m.Messages++
		}
		if m.Took = now.Sub(begin); m.Took >= d {
			break
		}
		if _, err := s.Write(out[:back*size]); err != nil {
			return m, fmt.Errorf("ping-pong: %w", err)
		}
	}
	m.Bytes = m.Messages * int64(size)
	slices.Sort(m.Latencies)
	return m, s.CloseWrite()
}

// ServerHolds asks what the server holds in memory, after a collection.
func ServerHolds(ctx context.Context, c transport.Conn) (int64, error) {
	s, err := c.OpenStream(ctx)
	if err != nil {
		return 0, fmt.Errorf("open stream: %w", err)
	}
	var n [8]byte
	if _, err = s.Write(head(memory, 0, 0)); err == nil {
		_, err = io.ReadFull(s, n[:])
	}
	if err != nil {
		return 0, fmt.Errorf("ask for memory: %w", err)
	}
	return int64(binary.LittleEndian.Uint64(n[:])), s.CloseWrite()
}

// Idle opens a stream that has had one answer and does nothing.
func Idle(ctx context.Context, c transport.Conn) error {
	s, err := c.OpenStream(ctx)
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	if _, err = s.Write(append(head(idle, 1, 0), 0)); err == nil {
		_, err = io.ReadFull(s, make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("idle stream: %w", err)
	}
	return nil
}
