// SPDX-License-Identifier: Apache-2.0

// Package wire encodes and parses the frames that clients and brokers exchange on lanes; it works on
// byte slices only, opens nothing, and refuses every body that is not exactly what its type says.
//
// docs/formats/frames.md is the format, testdata/vectors/frames its golden vectors.
package wire

import (
	"encoding/binary"
	"strconv"

	"margay.dev/wire/code"
)

const (
	// Version is the protocol version this build speaks; Hello offers a range of them.
	Version = 1
	// HeaderSize is the size of the fixed frame header.
	HeaderSize = 16
	// Magic opens every frame header: "MG" in little-endian order.
	Magic uint16 = 0x474d
	// MaxFrame bounds the body of a frame.
	MaxFrame = 16 << 20
	// MaxFrameBeforeAuth bounds the body of a frame until the connection is authenticated: whoever has
	// not shown a token gets no more memory than a token needs.
	MaxFrameBeforeAuth = 64 << 10
)

// Type says what a frame is. The numbers are frozen.
type Type uint8

// The frame types. Numbers 0 and 255 are never given out.
const (
	TypeHello         Type = 1
	TypeHelloOk       Type = 2
	TypeAuth          Type = 3
	TypeAuthOk        Type = 4
	TypeError         Type = 5
	TypePing          Type = 6
	TypePong          Type = 7
	TypeGoodbye       Type = 8
	TypeLookup        Type = 10
	TypeLogInfo       Type = 11
	TypeOffsets       Type = 12
	TypeOffsetsOk     Type = 13
	TypePublish       Type = 20
	TypePublished     Type = 21
	TypeSubscribe     Type = 30
	TypeSubscribed    Type = 31
	TypeDeliver       Type = 32
	TypeGap           Type = 33
	TypeProgress      Type = 34
	TypeEnd           Type = 35
	TypeUnsubscribe   Type = 36
	TypeDeliverSlice  Type = 37
	TypeCommit        Type = 38
	TypeCommitted     Type = 39
	TypeCursorList    Type = 40
	TypeCursors       Type = 41
	TypeCursorDelete  Type = 42
	TypeDone          Type = 43
	TypeProducerState Type = 44
	TypeProducerLast  Type = 45
	TypeSetLast       Type = 46
	TypeClearLast     Type = 47
	TypeTrim          Type = 48
	TypeTrimmed       Type = 49
	TypeGet           Type = 50
	TypeGot           Type = 51
	TypeList          Type = 52
	TypeListed        Type = 53
	TypeCount         Type = 54
	TypeCounted       Type = 55
	TypeWatch         Type = 56
	TypeWatched       Type = 57
	TypeWatchEntries  Type = 58
	TypeWatchDone     Type = 59
	TypeUnwatch       Type = 60
	TypeWatchEnd      Type = 61
	TypeConsume       Type = 62
	TypeConsumed      Type = 63
	TypeMessages      Type = 64
	TypeSettle        Type = 65
	TypeSettled       Type = 66
	TypeExtend        Type = 67
	TypeExtended      Type = 68
	TypeFlow          Type = 69
	TypeLeave         Type = 70
	TypeConsumeEnd    Type = 71
	TypeGroupCommand  Type = 72
	TypeGroupDone     Type = 73
	TypeGroupQuery    Type = 74
	TypeGroupInfos    Type = 75
	TypeBrowse        Type = 76
	TypeBrowsed       Type = 77
)

// typeNames names the types this build knows, and so is the list of them.
var typeNames = [...]string{
	TypeHello: "hello", TypeHelloOk: "hello_ok", TypeAuth: "auth", TypeAuthOk: "auth_ok", TypeError: "error",
	TypePing: "ping", TypePong: "pong", TypeGoodbye: "goodbye",
	TypeLookup: "lookup", TypeLogInfo: "log_info", TypeOffsets: "offsets", TypeOffsetsOk: "offsets_ok",
	TypePublish: "publish", TypePublished: "published",
	TypeSubscribe: "subscribe", TypeSubscribed: "subscribed", TypeDeliver: "deliver", TypeGap: "gap",
	TypeProgress: "progress", TypeEnd: "end", TypeUnsubscribe: "unsubscribe", TypeDeliverSlice: "deliver_slice",
	TypeCommit: "commit", TypeCommitted: "committed", TypeCursorList: "cursor_list", TypeCursors: "cursors",
	TypeCursorDelete: "cursor_delete", TypeDone: "done", TypeProducerState: "producer_state",
	TypeProducerLast: "producer_last", TypeSetLast: "set_last", TypeClearLast: "clear_last",
	TypeTrim: "trim", TypeTrimmed: "trimmed",
	TypeGet: "get", TypeGot: "got", TypeList: "list", TypeListed: "listed", TypeCount: "count", TypeCounted: "counted",
	TypeWatch: "watch", TypeWatched: "watched", TypeWatchEntries: "watch_entries", TypeWatchDone: "watch_done",
	TypeUnwatch: "unwatch", TypeWatchEnd: "watch_end",
	TypeConsume: "consume", TypeConsumed: "consumed", TypeMessages: "messages", TypeSettle: "settle",
	TypeSettled: "settled", TypeExtend: "extend", TypeExtended: "extended", TypeFlow: "flow",
	TypeLeave: "leave", TypeConsumeEnd: "consume_end", TypeGroupCommand: "group_command", TypeGroupDone: "group_done",
	TypeGroupQuery: "group_query", TypeGroupInfos: "group_infos", TypeBrowse: "browse", TypeBrowsed: "browsed",
}

// Known reports whether this build knows the type.
func (t Type) Known() bool { return int(t) < len(typeNames) && typeNames[t] != "" }

// String returns the name of the type as docs/formats/frames.md writes it.
func (t Type) String() string {
	if t.Known() {
		return typeNames[t]
	}
	return "type_" + strconv.Itoa(int(t))
}

// Frame is the body of a frame. Append and Size agree; Parse consumes the body exactly, checks every
// length before it allocates, and aliases the body where its field is a byte slice. A frame that is
// parsed into again reuses its slices. Parse reads a body without flags; see Flagged for the others.
type Frame interface {
	Type() Type
	Size() int
	Append(dst []byte) []byte
	Parse(body []byte) error
}

// Header is the fixed part of a frame.
type Header struct {
	Type  Type
	Flags uint8
	// Size of the body in bytes.
	Size uint32
	// Corr is the correlation id: chosen by who asks, repeated by every frame that answers, 0 for
	// frames that answer nothing.
	Corr uint64
}

// Supported says whether this build can read the frame's body: nil, or an error with code Unsupported
// for a type or flag it does not know. Such a frame is skipped by its size and answered with that
// error under its own correlation id; the lane and the connection live on.
func (h Header) Supported() error {
	if !h.Type.Known() {
		return code.New(code.Unsupported, "frame %s: unknown type", h.Type)
	}
	if unknown := h.Flags &^ h.Type.flags(); unknown != 0 {
		return code.New(code.Unsupported, "frame %s: unknown flags %#02x", h.Type, unknown)
	}
	return nil
}

// ParseHeader reads a frame header. An error means that the peer does not speak this protocol: nothing
// behind the header can be trusted, and the connection must be closed.
func ParseHeader(b [HeaderSize]byte) (Header, error) {
	if m := binary.LittleEndian.Uint16(b[0:]); m != Magic {
		return Header{}, code.New(code.Protocol, "frame header: magic %#04x, want %#04x", m, Magic)
	}
	h := Header{
		Type:  Type(b[2]),
		Flags: b[3],
		Size:  binary.LittleEndian.Uint32(b[4:]),
		Corr:  binary.LittleEndian.Uint64(b[8:]),
	}
	if h.Size > MaxFrame {
		return Header{}, code.New(code.Protocol, "frame %s: body of %d bytes exceeds %d", h.Type, h.Size, MaxFrame).
			With(code.DetailLimit, MaxFrame)
	}
	return h, nil
}

// AppendHeader appends the header of a frame whose body the caller appends next.
func AppendHeader(dst []byte, h Header) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, Magic)
	dst = append(dst, byte(h.Type), h.Flags)
	dst = binary.LittleEndian.AppendUint32(dst, h.Size)
	return binary.LittleEndian.AppendUint64(dst, h.Corr)
}

// AppendFrame appends a whole frame. It allocates nothing when dst has room and f is a pointer the
// caller keeps and reuses.
func AppendFrame(dst []byte, corr uint64, f Frame) []byte {
	h := Header{Type: f.Type(), Size: uint32(f.Size()), Corr: corr}
	if x, ok := f.(Flagged); ok {
		h.Flags = x.Flags()
	}
	return f.Append(AppendHeader(dst, h))
}
