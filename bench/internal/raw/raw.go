// SPDX-License-Identifier: Apache-2.0

// Package raw measures what a transport carries when nothing is built on it: bytes one way, requests and answers, and
// connections that do nothing; it parses nothing, checks nothing and stores nothing.
package raw

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"margay.dev/bench/internal/transport"
)

// What a stream is for: the first byte on it.
const (
	upload   byte = 'u' // the client writes until it ends its direction; the server answers how many bytes came
	download byte = 'd' // the server writes for the time that it is told
	echo     byte = 'e' // the server writes back what one read brought, in one write
	idle     byte = 'i' // the server answers one byte and then waits, with no buffer of its own
	memory   byte = 'm' // the server answers what it holds in memory, after a collection
)

// headSize is the first byte, the size of a write (u32) and the duration in milliseconds (u32).
const headSize = 9

func head(mode byte, size int, d time.Duration) []byte {
	b := append(make([]byte, 0, headSize), mode)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	return binary.LittleEndian.AppendUint32(b, uint32(d.Milliseconds()))
}

// Serve answers on every connection until ctx ends.
func Serve(ctx context.Context, l transport.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // Accept tells
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		all.Go(func() { serveConn(ctx, c) })
	}
}

func serveConn(ctx context.Context, c transport.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // whoever reads is told
	defer func() { _ = c.Close() }()
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		s, err := c.AcceptStream(ctx)
		if err != nil {
			return
		}
		if c.Single() {
			_ = serve(s)
			return
		}
		streams.Go(func() { _ = serve(s) }) // a client that leaves is no fault
	}
}

func serve(s transport.Stream) error {
	var h [headSize]byte
	if _, err := io.ReadFull(s, h[:]); err != nil {
		return err
	}
	size, d := int(binary.LittleEndian.Uint32(h[1:])), time.Duration(binary.LittleEndian.Uint32(h[5:]))*time.Millisecond
	switch h[0] {
	case upload:
		n, err := drain(s, make([]byte, 64<<10))
		if err != nil {
			return err
		}
		return answer(s, uint64(n))
	case download:
		chunk := make([]byte, size)
		for end := time.Now().Add(d); time.Now().Before(end); {
			if _, err := s.Write(chunk); err != nil {
				return err
			}
		}
		return s.CloseWrite()
	case echo:
		return echoes(s, make([]byte, 64<<10))
	case idle:
		return echoes(s, make([]byte, 1))
	case memory:
		return answer(s, Held())
	}
	return fmt.Errorf("stream for %q", h[0])
}

func echoes(s transport.Stream, buf []byte) error {
	for {
		n, err := s.Read(buf)
		if err != nil {
			return errors.Join(err, s.CloseWrite())
		}
		if _, err := s.Write(buf[:n]); err != nil {
			return err
		}
	}
}

func answer(s transport.Stream, v uint64) error {
	if _, err := s.Write(binary.LittleEndian.AppendUint64(nil, v)); err != nil {
		return err
	}
	return s.CloseWrite()
}

func drain(s io.Reader, buf []byte) (int64, error) {
	var all int64
	for {
		n, err := s.Read(buf)
		all += int64(n)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// Held is the memory that this process holds after a collection: live heap and stacks, in bytes.
func Held() uint64 {
	runtime.GC()
	debug.FreeOSMemory() // a second collection: what finalizers and pools let go of
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64()
}
