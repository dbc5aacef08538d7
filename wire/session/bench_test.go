// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"margay.dev/wire"
)

// BenchmarkPingPong keeps a number of 256-byte requests in flight on one lane; the server answers what
// one read has brought with one Send, as a broker does.
func BenchmarkPingPong(b *testing.B) { overEach(b, benchPingPong) }

func benchPingPong(b *testing.B, tr transport) {
	b.Helper()
	for _, inFlight := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			br := tr.listen(b, Config{}, answer)
			l := open(b, br.connect(Config{}))
			frame := wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: 240, Corr: 1})
			frame = append(frame, make([]byte, 240)...)
			slots := make(chan struct{}, inFlight)
			var reader sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			reader.Go(func() {
				for range b.N {
					if _, err := l.ReadHeader(); err != nil {
						b.Error(err)
						return
					}
					<-slots
				}
			})
			for range b.N {
				slots <- struct{}{}
				if err := l.Send(frame); err != nil {
					b.Fatal(err)
				}
			}
			reader.Wait()
			b.StopTimer()
			_ = l.Close()
		})
	}
}

func overEach(b *testing.B, run func(*testing.B, transport)) {
	b.Helper()
	for _, tr := range []transport{overQUIC, overTLS} {
		b.Run(tr.name, func(b *testing.B) { run(b, tr) })
	}
}

// answer sends a small frame for each it reads.
func answer(_ Conn, l *Lane) {
	defer func() { _ = l.Close() }()
	var reply wire.Published
	for {
		h, err := l.ReadHeader()
		if err != nil {
			return
		}
		if err := l.SendFrame(h.Corr, &reply); err != nil {
			return
		}
	}
}

// BenchmarkOneWay moves bodies of 1 MiB, 64 KiB and 1 KiB from client to server.
func BenchmarkOneWay(b *testing.B) { overEach(b, benchOneWay) }

func benchOneWay(b *testing.B, tr transport) {
	b.Helper()
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			done := make(chan struct{})
			br := tr.listen(b, Config{}, func(c Conn, l *Lane) {
				c.SetMaxFrame(wire.MaxFrame)
				defer close(done)
				defer func() { _ = l.Close() }()
				buf := make([]byte, size)
				for range b.N {
					h, err := l.ReadHeader()
					if err == nil {
						err = l.ReadBody(buf[:h.Size])
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			l := open(b, br.connect(Config{}))
			frame := append(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: uint32(size)}), make([]byte, size)...)
			batch := make([]byte, 0, max(len(frame), 64<<10))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				batch = append(batch, frame...)
				if len(batch)+len(frame) > cap(batch) || i == b.N-1 {
					if err := l.Write(batch); err != nil {
						b.Fatal(err)
					}
					batch = batch[:0]
				}
			}
			<-done
			b.StopTimer()
			_ = l.Close()
		})
	}
}

// BenchmarkIdleLane reports what one idle lane costs a process that holds both of its ends, a reader
// waiting at each.
func BenchmarkIdleLane(b *testing.B) { overEach(b, benchIdleLane) }

func benchIdleLane(b *testing.B, tr transport) {
	b.Helper()
	const lanes = 2000
	var served sync.WaitGroup
	served.Add(lanes)
	br := tr.listen(b, Config{}, func(_ Conn, l *Lane) {
		if _, err := l.ReadHeader(); err == nil {
			_ = l.SendFrame(1, &wire.Pong{})
			served.Done()
			_, _ = l.ReadHeader()
		}
		_ = l.Close()
	})
	for b.Loop() {
		c := br.connect(Config{})
		before := heap()
		var clients sync.WaitGroup
		for range lanes {
			l := open(b, c)
			_ = l.SendFrame(1, &wire.Ping{})
			clients.Go(func() {
				_, _ = l.ReadHeader()
				_, _ = l.ReadHeader()
				_ = l.Close()
			})
		}
		served.Wait()
		runtime.GC()
		b.ReportMetric(float64(heap()-before)/lanes/2, "B/lane")
		_ = c.Close(0, "")
		clients.Wait()
		served.Add(lanes)
	}
}
