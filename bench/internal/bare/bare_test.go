// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"margay.dev/bench/internal/journal"
	"margay.dev/bench/internal/transport"
)

const patience = 60 * time.Second

// start serves below a temporary directory until the test ends, and returns the directory and the address.
func start(t *testing.T, kind transport.Kind) (dir, addr string) {
	t.Helper()
	dir = t.TempDir()
	j, err := journal.Create(dir, "bare")
	if err != nil {
		t.Fatal(err)
	}
	l, err := transport.Listen(t.Context(), kind, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Server{Journal: j}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, j.Close()); err != nil {
			t.Error(err)
		}
	})
	return dir, l.Addr()
}

// TestAcknowledgedIsWritten: every message is told of once, and what is acknowledged is in the journal.
func TestAcknowledgedIsWritten(t *testing.T) {
	for _, kind := range []transport.Kind{transport.QUIC, transport.TLS} {
		t.Run(kind.String(), func(t *testing.T) {
			dir, addr := start(t, kind)
			const messages, clients = 500, 3
			var mu sync.Mutex
			acked, all := 0, make(chan struct{})
			done := func(_ int64, n int, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if acked += n; acked == messages*clients {
					close(all)
				}
			}
			for i := range clients {
				p, err := System{kind, addr}.Publisher(t.Context(), i, done)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = p.Close() }()
				for m := range messages {
					if err := p.Publish(t.Context(), []byte("a message of the test"), int64(m)); err != nil {
						t.Fatal(err)
					}
					if m%7 == 0 || m == messages-1 {
						if err := p.(*publisher).Flush(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			select {
			case <-all:
			case <-time.After(patience):
				t.Fatalf("waited %v for all messages to be acknowledged", patience)
			}
			b, err := os.ReadFile(filepath.Join(dir, "bare.0"))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(b, []byte("a message of the test")); n != messages*clients {
				t.Errorf("%d messages are in the journal, %d were acknowledged", n, messages*clients)
			}
		})
	}
}

// TestDamageIsRefused: a batch whose checksum is wrong ends its connection, and what was under way has failed.
func TestDamageIsRefused(t *testing.T) {
	_, addr := start(t, transport.TLS)
	failed := make(chan error, 1)
	lp, err := System{transport.TLS, addr}.Publisher(t.Context(), 0, func(_ int64, _ int, err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	p := lp.(*publisher)
	defer func() { _ = p.Close() }()
	b := appendRecord(make([]byte, headSize), []byte("damaged"))
	seal(b, 0)
	b[len(b)-1]++
	p.mu.Lock()
	p.sent[0] = []run{{1, 1}}
	p.mu.Unlock()
	if _, err := p.stream.Write(b); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if err == nil {
			t.Error("a damaged batch was acknowledged")
		}
	case <-time.After(patience):
		t.Fatalf("waited %v for the damaged batch to fail", patience)
	}
}

// TestLengthsAreChecked: records have to fill their batch exactly.
func TestLengthsAreChecked(t *testing.T) {
	_, addr := start(t, transport.TLS)
	c, err := transport.Dial(t.Context(), transport.TLS, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := c.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, headSize), 99)
	seal(b, 0)
	if _, err := s.Write(b); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(make([]byte, ackSize)); err == nil {
		t.Errorf("%d bytes of an answer to a batch that promises more than it holds", n)
	}
}
