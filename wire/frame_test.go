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
		got, h := newFrame(s.frame.Type()), headerOf(t, s)
		if err := ParseFrame(h, got, body); err != nil {
			t.Errorf("%s: %v", s.name, err)
		} else if !bytes.Equal(got.Append(nil), body) {
			t.Errorf("%s: parsed %+v, encoded %+v", s.name, got, s.frame)
		}
		// Parsing into a used frame leaves nothing of its former meaning.
		if err := ParseFrame(h, s.frame, body); err != nil || !reflect.DeepEqual(s.frame.Append(nil), body) {
			t.Errorf("%s: parsed again %+v, %v", s.name, s.frame, err)
		}
		for cut := range body {
			if err := ParseFrame(h, got, body[:cut]); err == nil && cut <= len(body)-restOf(s.frame) {
				t.Errorf("%s: accepted with %d of %d bytes", s.name, cut, len(body))
			}
		}
	}
}

// restOf is what stands at the end of some frames and may have any length but zero.
func restOf(f Frame) int {
	switch f := f.(type) {
	case *Publish:
		return len(f.Batch)
	case *Deliver:
		return len(f.Batch)
	case *DeliverSlice:
		return len(f.Slices)
	case *SetLast:
		return len(f.Batch)
	case *Messages:
		return len(f.Batch)
	}
	return 0
}

// headerOf reads the header that AppendFrame writes.
func headerOf(t testing.TB, s sample) Header {
	t.Helper()
	h, err := ParseHeader([HeaderSize]byte(AppendFrame(nil, s.corr, s.frame)))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestFlagsFollowTheFields: a frame that was used with flags and is read again without them forgets what they brought.
func TestFlagsFollowTheFields(t *testing.T) {
	used := map[Type]Frame{}
	for _, s := range samples() {
		f, ok := s.frame.(Flagged)
		if !ok {
			continue
		}
		used[f.Type()] = newFrame(f.Type())
		other := newFrame(f.Type()).(Flagged)
		if err := other.ParseFlags(f.Flags()|0x80, f.Append(nil)); !errors.Is(err, ErrValue) {
			t.Errorf("%s: an unknown flag: %v", s.name, err)
		}
		if f.Flags() != 0 {
			if err := other.Parse(f.Append(nil)); err == nil && f.Type() != TypePublish && f.Type() != TypeMessages {
				t.Errorf("%s: a body with flags is read without them", s.name)
			}
		}
	}
	for range 2 {
		for _, s := range samples() {
			f, ok := used[s.frame.Type()]
			if !ok {
				continue
			}
			want := AppendFrame(nil, s.corr, s.frame)
			if err := ParseFrame(headerOf(t, s), f, want[HeaderSize:]); err != nil || !bytes.Equal(AppendFrame(nil, s.corr, f), want) {
				t.Errorf("%s: %+v, %v", s.name, f, err)
			}
		}
	}
}

func TestAppendHeadIsTheFrameUpToTheBatch(t *testing.T) {
	for _, s := range samples() {
		var head []byte
		switch f := s.frame.(type) {
		case *Publish:
			if head = f.AppendHead(nil, s.corr); len(head) != HeaderSize+f.Head() {
				t.Errorf("%s: head of %d bytes, said %d", s.name, len(head)-HeaderSize, f.Head())
			}
		case *Deliver:
			head = f.AppendHead(nil)
		case *DeliverSlice:
			head = f.AppendHead(nil)
		case *Messages:
			head = f.AppendHead(nil)
		default:
			continue
		}
		if whole := AppendFrame(nil, s.corr, s.frame); !bytes.Equal(head, whole[:len(whole)-restOf(s.frame)]) {
			t.Errorf("%s: head %x of frame %x", s.name, head, whole)
		}
	}
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
		for bit := range 8 {
			h.Flags = 1 << bit
			known := h.Flags&Type(typ).flags() != 0
			if err := h.Supported(); known != (err == nil) || err != nil && !errors.Is(err, code.Unsupported) {
				t.Errorf("type %d with flag %#x: %v", typ, h.Flags, err)
			}
			if f := newFrame(Type(typ)); f != nil && !known && !errors.Is(ParseFrame(h, f, nil), code.Unsupported) {
				t.Errorf("type %d with flag %#x is parsed", typ, h.Flags)
			}
			if f, ok := newFrame(Type(typ)).(Flagged); ok && !known && f.ParseFlags(h.Flags, nil) == nil {
				t.Errorf("type %d takes flag %#x", typ, h.Flags)
			}
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
	for _, f := range []Frame{&Publish{}, &Published{}, &Deliver{}, &Progress{}, &Gap{}, &Subscribe{}, &DeliverSlice{}, &Commit{}, &Messages{}, &Settled{}, &Flow{}} {
		for _, s := range samples() {
			if x, ok := s.frame.(*Subscribe); s.frame.Type() != f.Type() || ok && x.Flags() != 0 { // strings of its own
				continue
			}
			body, h := s.frame.Append(nil), headerOf(t, s)
			if n := testing.AllocsPerRun(100, func() { _ = ParseFrame(h, f, body) }); n != 0 {
				t.Errorf("parse %s: %v allocations", s.name, n)
			}
		}
	}
}

// FuzzFrames parses any body as any type: nothing panics, nothing is allocated beyond a small multiple
// of the body, and whatever is accepted has exactly one encoding.
func FuzzFrames(f *testing.F) {
	for _, s := range samples() {
		f.Add(byte(s.frame.Type()), headerOf(f, s).Flags, s.frame.Append(nil))
	}
	f.Fuzz(func(t *testing.T, typ, flags byte, body []byte) {
		frame := newFrame(Type(typ))
		h := Header{Type: Type(typ), Flags: flags, Size: uint32(len(body))}
		if frame == nil || h.Supported() != nil {
			return
		}
		if err := ParseFrame(h, frame, body); err != nil {
			if _, ok := errors.AsType[*ParseError](err); !ok || code.From(err).Code != code.BadRequest {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again := AppendFrame(nil, 0, frame)
		if [HeaderSize]byte(again) != [HeaderSize]byte(AppendHeader(nil, h)) && Type(typ) != TypeError {
			t.Fatalf("header %+v became %x", h, again[:HeaderSize])
		}
		again = again[HeaderSize:]
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
