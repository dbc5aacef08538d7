// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"time"

	"github.com/quic-go/quic-go"

	"margay.dev/wire/code"
)

const (
	// maxChunk is how much is handed to QUIC under one deadline.
	maxChunk = 256 << 10
	// watchEvery is how long a write may stand still before its connection is looked at.
	watchEvery = time.Second
	// narrowAfter is how long a write stands still before losses alone say that the path has become too narrow; manyLost, how
	// many bytes they are: more than the search for wider paths loses.
	narrowAfter = 10 * time.Second
	manyLost    = 8 << 10
)

// quicStream is the stream of a lane over QUIC.
type quicStream struct {
	s    *quic.Stream
	conn *quicConn
}

func (q quicStream) Read(p []byte) (int, error) {
	n, err := q.s.Read(p)
	if err != nil {
		err = convert("lane read", err)
	}
	return n, err
}

// Write holds nothing back: QUIC itself gathers small pieces.
func (q quicStream) Write(p []byte, _ bool) (int, error) {
	if len(p) == 0 { // only the state of the stream is asked for
		_, err := q.s.Write(nil)
		return 0, convert("lane write", err)
	}
	written := 0
	for written < len(p) {
		n, err := q.writeChunk(p[written:min(len(p), written+maxChunk)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// writeChunk writes p under the deadline, and while nothing moves looks every second whether the path
// has become too narrow for the packets on it.
func (q quicStream) writeChunk(p []byte) (written int, err error) {
	limit := q.conn.cfg.WriteTimeout
	moved := time.Now()
	var before traffic // when the standstill was first seen
	for watching := false; ; watching = true {
		_ = q.s.SetWriteDeadline(time.Now().Add(min(watchEvery, limit))) // never fails on an open stream; the write tells
		n, err := q.s.Write(p[written:])
		written += n
		if err != nil {
			err = convert("lane write", err)
		}
		if err == nil || written == len(p) || !errors.Is(err, code.Timeout) {
			return written, err
		}
		if now := time.Now(); n > 0 {
			moved, watching = now, false
		} else if now.Sub(moved) >= limit {
			return written, err
		}
		sample := q.conn.traffic()
		if !watching {
			before = sample
		} else if sample.blackHole(before) || time.Since(moved) >= narrowAfter && sample.lossy(before) {
			const narrow = "the path carries only small packets"
			q.conn.link.abort(code.Unavailable, narrow)
			return written, code.New(code.Unavailable, "lane write: %s", narrow)
		}
	}
}

func (q quicStream) SetReadDeadline(t time.Time) error { return q.s.SetReadDeadline(t) }
func (q quicStream) Finish() error                     { return q.s.Close() }
func (q quicStream) Done() <-chan struct{}             { return q.s.Context().Done() }

// CancelRead and Cancel: both directions must end on both sides, or QUIC counts the stream as open for
// ever and the connection runs out of them.
func (q quicStream) CancelRead(c code.Code) { q.s.CancelRead(quic.StreamErrorCode(c)) }

func (q quicStream) Cancel(c code.Code) {
	q.s.CancelWrite(quic.StreamErrorCode(c))
	q.s.CancelRead(quic.StreamErrorCode(c))
}

func (q quicStream) Release() { q.s.ReleaseStreamCredit() }

// traffic is a sample of what a connection has sent and heard.
type traffic struct {
	bytesSent, packetsSent, packetsReceived, bytesLost uint64
	// lastRTT and window change with every acknowledgement.
	lastRTT time.Duration
	window  uint64
}

// blackHole says that since an earlier sample large packets were sent, not one was acknowledged, and yet
// the peer was heard: the path has become narrower than it was found to be. The small packets that come
// through keep the connection alive, and the transport, which finds wider paths but not narrower ones,
// would send the large ones again for ever. A path that is dead both ways is left to the idle timeout.
func (t traffic) blackHole(before traffic) bool {
	const small = 100 // keepalives and acknowledgements are below this
	sent, packets := t.bytesSent-before.bytesSent, t.packetsSent-before.packetsSent
	return sent >= minPacketSize+small*packets &&
		t.packetsReceived > before.packetsReceived &&
		t.lastRTT == before.lastRTT && t.window == before.window
}

// lossy says that since an earlier sample the peer was heard and much was lost. It is for the case that blackHole cannot see:
// when both sides show life at the same moments, an acknowledgement of something small comes with every sign of the peer.
func (t traffic) lossy(before traffic) bool {
	return t.packetsReceived > before.packetsReceived && t.bytesLost >= before.bytesLost+manyLost
}
