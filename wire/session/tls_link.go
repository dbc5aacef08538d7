// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"os"
	"time"

	"margay.dev/wire/code"
)

// maxEarly is how much can be said of a lane before it is there: that it is read no more, and that it has ended.
const maxEarly = 2

// post sends a message on the link without waiting. When the session has ended it is dropped.
func (c *tlsConn) post(m message) {
	c.state.Lock()
	if c.err == nil {
		c.put(m)
	}
	full := len(c.outbox) > maxOutbox
	c.state.Unlock()
	if full {
		c.finish(code.New(code.Unavailable, "connection: the peer does not read its link"), nil)
	}
}

// put is post with state held.
func (c *tlsConn) put(m message) {
	c.outbox = m.append(c.outbox)
	if !c.sending {
		c.sending = c.spawn(c.send)
	}
}

// send empties the outbox. It runs only while there is something in it: an idle session has one goroutine.
func (c *tlsConn) send() {
	var spare []byte
	for {
		c.state.Lock()
		batch := c.outbox
		c.outbox = spare[:0]
		if len(batch) == 0 {
			c.sending = false
			over := c.err != nil
			c.outbox = nil
			c.state.Unlock()
			if over { // the last word is written
				_ = c.tls.CloseWrite()
				c.raw.shut()
				_ = c.raw.SetReadDeadline(time.Now().Add(heardWithin))
			}
			return
		}
		if c.err != nil {
			c.raw.finishBy(time.Now().Add(lastWord))
		}
		c.state.Unlock()
		if _, err := c.tls.Write(batch); err != nil {
			c.finish(c.linkError(err), nil)
			return
		}
		spare = batch
	}
}

// linkError: whatever broke the link, the peer may come back, and nothing new is applied there meanwhile.
func (c *tlsConn) linkError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return code.New(code.Unavailable, "connection: no sign of life within %v", c.cfg.Idle)
	}
	e := code.From(convert("connection", err))
	if e.Code != code.Protocol {
		e = code.New(code.Unavailable, "connection: %w", err)
	}
	return e
}

// showLife asks a peer that was not heard of for a sign of life.
func (c *tlsConn) showLife() {
	c.state.Lock()
	defer c.state.Unlock()
	if c.err != nil {
		return
	}
	if time.Since(c.heard) >= c.cfg.KeepAlive/2 {
		c.put(message{kind: msgAlive, code: 1})
	}
	c.alive.Reset(c.cfg.KeepAlive)
}

// listen reads the link until the session has ended and the peer has heard of it.
func (c *tlsConn) listen() {
	defer func() { _ = c.raw.Close() }()
	for {
		c.state.Lock()
		if c.err == nil { // otherwise finish has said how long the peer is waited for
			_ = c.raw.SetReadDeadline(time.Now().Add(c.cfg.Idle)) // the read tells
		}
		c.state.Unlock()
		m, err := readMessage(c.tls)
		if err == nil {
			err = c.take(m)
		}
		switch e := c.linkError(err); {
		case err == nil:
		case errors.Is(e, code.Protocol):
			c.abort(code.Protocol, code.From(e).Message)
			c.raw.drain(lastWord + heardWithin)
			return
		default:
			c.finish(e, nil)
			return
		}
	}
}

// take does what a message says. Unknown lanes are no fault: messages cross.
func (c *tlsConn) take(m message) error {
	c.state.Lock()
	c.heard = time.Now()
	s := c.lanes[m.lane]
	client := c.join != nil
	if early, opening := c.opening[m.lane]; opening && len(early) < maxEarly && (m.kind == msgReset || m.kind == msgStop) {
		c.opening[m.lane] = append(early, m)
	}
	c.state.Unlock()
	switch m.kind {
	case msgAlive:
		if m.code == 1 {
			c.post(message{kind: msgAlive})
		}
	case msgReset, msgStop:
		if s != nil {
			s.hear(m)
		} else if !client && m.kind == msgReset { // it never came, or is done: either way its number is free
			c.post(message{kind: msgDone, lane: m.lane})
		}
	case msgDone:
		if !client {
			return code.New(code.Protocol, "link: only a server is done with a lane")
		}
		c.state.Lock()
		c.done(m.lane)
		c.state.Unlock()
	case msgClose:
		c.finish(closeError("connection", m.code, true, m.text), nil)
	default:
		return code.New(code.Protocol, "link: message %d answers nothing", m.kind)
	}
	return nil
}
