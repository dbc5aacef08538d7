// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/binary"
	"io"
	"strings"
	"unicode/utf8"

	"margay.dev/wire/code"
)

// A session over TLS is several TCP connections: its link, and one for each lane. docs/formats/frames.md
// has the bytes that they begin with, and those of the link.

const (
	prefaceMagic   = 0x53474d4d // the bytes MMGS
	prefaceVersion = 1
	prefaceSize    = 48
	messageSize    = 16
	// maxText of a message, in bytes: a close carries a sentence, not a document.
	maxText = 1024
)

// sessionID is what a join is known by. It is secret: who knows it joins with what the session has shown.
type sessionID [32]byte

// prefaceKind says what a TCP connection is to be.
type prefaceKind byte

const (
	prefaceNew  prefaceKind = 1 // the link of a new session
	prefaceJoin prefaceKind = 2 // a lane of one that there is
)

// preface is what a client says first on each TCP connection, inside TLS.
type preface struct {
	kind prefaceKind
	id   sessionID
	lane uint64
}

func (p *preface) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, prefaceMagic)
	b = append(b, prefaceVersion, byte(p.kind), 0, 0)
	b = append(b, p.id[:]...)
	return binary.LittleEndian.AppendUint64(b, p.lane)
}

func parsePreface(b [prefaceSize]byte) (preface, error) {
	p := preface{kind: prefaceKind(b[5]), id: sessionID(b[8:40]), lane: binary.LittleEndian.Uint64(b[40:])}
	switch {
	case binary.LittleEndian.Uint32(b[:]) != prefaceMagic:
		return p, code.New(code.Protocol, "preface: wrong magic")
	case b[4] != prefaceVersion:
		return p, code.New(code.Unsupported, "preface: version %d is not %d", b[4], prefaceVersion)
	case b[6] != 0 || b[7] != 0:
		return p, code.New(code.Protocol, "preface: the reserved bytes are not zero")
	case p.kind != prefaceNew && p.kind != prefaceJoin:
		return p, code.New(code.Protocol, "preface: kind %d is not known", p.kind)
	case (p.kind == prefaceJoin) != (p.lane != 0):
		return p, code.New(code.Protocol, "preface: kind %d with lane %d", p.kind, p.lane)
	case p.id == sessionID{}:
		return p, code.New(code.Protocol, "preface: no session id")
	}
	return p, nil
}

// messageKind is what a message says.
type messageKind byte

const (
	// msgAccepted and msgRefused answer a preface; the lane of an accepted link is how many lanes there may be.
	msgAccepted messageKind = 1 + iota
	msgRefused
	// msgAlive shows life, and with code 1 asks for it.
	msgAlive
	// msgReset: the sender has ended both directions of a lane. msgStop: it reads no more of it. msgDone: the server has let
	// go of the lane, which counts no more.
	msgReset
	msgStop
	msgDone
	// msgClose ends the session.
	msgClose
)

// message is the answer to a preface, and all that a link carries behind it.
type message struct {
	kind messageKind
	code code.Code
	lane uint64
	text string
}

func (m *message) append(b []byte) []byte {
	text := m.text
	if len(text) > maxText {
		text = text[:maxText]
	}
	text = strings.ToValidUTF8(text, "") // a letter that was cut is left out
	b = append(b, byte(m.kind), 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(m.code))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = binary.LittleEndian.AppendUint64(b, m.lane)
	return append(b, text...)
}

// readMessage reads one message. Its text is allocated once its length is known to be small.
func readMessage(r io.Reader) (message, error) {
	var head [messageSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	m := message{
		kind: messageKind(head[0]), code: code.Code(binary.LittleEndian.Uint16(head[2:])),
		lane: binary.LittleEndian.Uint64(head[8:]),
	}
	size := binary.LittleEndian.Uint32(head[4:])
	if head[1] != 0 || size > maxText || !m.sound(size) {
		return m, code.New(code.Protocol, "link: message %x breaks its form", head)
	}
	if size > 0 {
		text := make([]byte, size)
		if _, err := io.ReadFull(r, text); err != nil {
			return m, err
		}
		if !utf8.Valid(text) {
			return m, code.New(code.Protocol, "link: the text of a message is no UTF-8")
		}
		m.text = string(text)
	}
	return m, nil
}

// sound says whether the message has what its kind has, and nothing else.
func (m *message) sound(text uint32) bool {
	switch m.kind {
	case msgAccepted:
		return m.code == 0 && text == 0
	case msgRefused:
		return m.code != 0 && m.lane == 0
	case msgAlive:
		return m.code <= 1 && m.lane == 0 && text == 0
	case msgReset, msgStop:
		return m.lane != 0 && text == 0
	case msgDone:
		return m.code == 0 && m.lane != 0 && text == 0
	case msgClose:
		return m.lane == 0
	}
	return false
}
