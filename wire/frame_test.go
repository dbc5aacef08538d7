// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"margay.dev/wire/code"
)

func TestRoundTrip(t *testing.T) {
	for _, s := range samples() {
		body := s.frame.Append(nil)
		if len(body) != s.frame.Size() {
			t.Errorf("%s: Size says %d, Append wrote %d", s.name, s.frame.Size(), len(body))
		}
		got := newFrame(s.frame.Type())
		if err := got.Parse(body); err != nil {
			t.Errorf("%s: %v", s.name, err)
		} else if !bytes.Equal(got.Append(nil), body) {
			t.Errorf("%s: parsed %+v, encoded %+v", s.name, got, s.frame)
		}
		// Parsing into a used frame leaves nothing of its former meaning.
		if err := s.frame.Parse(body); err != nil || !reflect.DeepEqual(s.frame.Append(nil), body) {
			t.Errorf("%s: parsed again %+v, %v", s.name, s.frame, err)
		}
		for cut := range body {
			if err := got.Parse(body[:cut]); err == nil && !tailIsFree(s.frame.Type(), cut) {
				t.Errorf("%s: accepted with %d of %d bytes", s.name, cut, len(body))
			}
		}
	}
}

// tailIsFree: the batch at the end of these frames may have any length but zero.
func tailIsFree(t Type, cut int) bool {
	return t == TypePublish && cut > PublishHead || t == TypeDeliver && cut > DeliverHead
}

func TestHeader(t *testing.T) {
	want := Header{Type: TypePublish, Flags: 3, Size: MaxFrame, Corr: 1<<64 - 1}
	b := AppendHeader(nil, want)
	if got, err := ParseHeader([HeaderSize]byte(b)); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	b[0] ^= 1
	if _, err := ParseHeader([HeaderSize]byte(b)); !errors.Is(err, code.Protocol) {
		t.Errorf("wrong magic: %v", err)
	}
	for _, size := range []uint32{MaxFrame + 1, 0x7fffffff, 0xffffffff} {
		b := AppendHeader(nil, Header{Type: TypePublish, Size: size})
		if _, err := ParseHeader([HeaderSize]byte(b)); !errors.Is(err, code.Protocol) {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestSupported(t *testing.T) {
	for typ := range 256 {
		h := Header{Type: Type(typ)}
		err := h.Supported()
		if Type(typ).Known() != (err == nil) || err != nil && !errors.Is(err, code.Unsupported) {
			t.Errorf("type %d: %v", typ, err)
		}
		h.Flags = 0x80
		if err := h.Supported(); !errors.Is(err, code.Unsupported) {
			t.Errorf("type %d with a flag: %v", typ, err)
		}
	}
}

func TestEncodingDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 4096)
	for _, s := range samples() {
		if n := testing.AllocsPerRun(100, func() { buf = AppendFrame(buf[:0], s.corr, s.frame) }); n != 0 {
			t.Errorf("append %s: %v allocations", s.name, n)
		}
	}
	for _, f := range []Frame{&Publish{}, &Published{}, &Deliver{}, &Progress{}, &Gap{}, &Subscribe{}} {
		for _, s := range samples() {
			if s.frame.Type() != f.Type() {
				continue
			}
			body := s.frame.Append(nil)
			if n := testing.AllocsPerRun(100, func() { _ = f.Parse(body) }); n != 0 {
				t.Errorf("parse %s: %v allocations", s.name, n)
			}
		}
	}
}

// FuzzFrames parses any body as any type: nothing panics, nothing is allocated beyond a small multiple
// of the body, and whatever is accepted has exactly one encoding.
func FuzzFrames(f *testing.F) {
	for _, s := range samples() {
		f.Add(byte(s.frame.Type()), s.frame.Append(nil))
	}
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		frame := newFrame(Type(typ))
		if frame == nil {
			return
		}
		if err := frame.Parse(body); err != nil {
			if _, ok := errors.AsType[*ParseError](err); !ok || code.From(err).Code != code.BadRequest {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again := frame.Append(nil)
		if len(again) != frame.Size() {
			t.Fatalf("Size %d, Append wrote %d", frame.Size(), len(again))
		}
		// Details of a newer peer are dropped, so an error may shrink; everything else is exact.
		if Type(typ) != TypeError && !bytes.Equal(again, body) {
			t.Fatalf("two encodings of one frame: %x and %x", body, again)
		}
	})
}

// FuzzHeader: no header makes anything but a header within the limits or a protocol error.
func FuzzHeader(f *testing.F) {
	f.Add(AppendFrame(nil, 7, &Ping{}))
	f.Add(AppendHeader(nil, Header{Type: 0x7f, Size: 0xffffffff}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		h, err := ParseHeader([HeaderSize]byte(b[:HeaderSize]))
		if err != nil {
			if !errors.Is(err, code.Protocol) {
				t.Fatal(err)
			}
			return
		}
		if h.Size > MaxFrame || !bytes.Equal(AppendHeader(nil, h), b[:HeaderSize]) {
			t.Fatalf("accepted %+v", h)
		}
	})
}
