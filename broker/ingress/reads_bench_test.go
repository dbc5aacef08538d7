// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"fmt"
	"testing"

	"margay.dev/wire"
)

// BenchmarkGets keeps 64 Gets in flight on one lane, over the loopback: client and broker share the machine.
func BenchmarkGets(b *testing.B) {
	const keys, window = 1000, 64
	f := start(b, nil)
	c, _ := f.client()
	l := f.lane(c)
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("k%04d", i)
	}
	f.keyed(f.lane(c), names...)
	frames := make([][]byte, keys)
	for i := range frames {
		frames[i] = wire.AppendFrame(nil, uint64(i), f.ask(names[i]))
	}
	slots := make(chan struct{}, window)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var batch []byte
		for i := 0; i < b.N; {
			slots <- struct{}{}
			batch = append(batch[:0], frames[i%keys]...)
			for i++; i < b.N && len(slots) < window; i++ { // what may go together does
				slots <- struct{}{}
				batch = append(batch, frames[i%keys]...)
			}
			if err := l.Write(batch); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	var body []byte
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		h, err := l.ReadHeader()
		if err != nil {
			b.Fatal(err)
		}
		if body, err = l.AppendBody(body[:0]); err != nil || h.Type != wire.TypeGot {
			b.Fatal(h.Type, err)
		}
		<-slots
	}
	<-sent
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
}
