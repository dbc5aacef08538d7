// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"cmp"
	"reflect"
	"slices"
	"unsafe"
)

// header is how a slice lies in memory.
type header struct {
	data unsafe.Pointer
	len  int
	cap  int
}

func (k *Kinds) makeSlice(w *walker, t reflect.Type) {
	elem, size := k.walker(t.Elem()), t.Elem().Size()
	shared := k.shared[t.Elem()]
	w.copy = func(c *copier, to, from unsafe.Pointer) {
		f := (*header)(from)
		if f.data == nil {
			return // the copy is nil, too: it was made so
		}
		made := reflect.MakeSlice(t, f.len, f.len)
		reflect.NewAt(t, to).Elem().Set(made)
		if elem.plain || shared {
			reflect.Copy(made, reflect.NewAt(t, from).Elem())
			return
		}
		data := made.UnsafePointer()
		for i := range f.len {
			elem.copy(c, unsafe.Add(data, uintptr(i)*size), unsafe.Add(f.data, uintptr(i)*size))
		}
	}
	w.sum = func(s *summer, p unsafe.Pointer) {
		f := (*header)(p)
		s.word(uint64(f.len))
		for i := range f.len {
			elem.sum(s, unsafe.Add(f.data, uintptr(i)*size))
		}
	}
	if isBytes(t.Elem()) {
		w.sum = func(s *summer, p unsafe.Pointer) {
			f := (*header)(p)
			s.bytes(unsafe.Slice((*byte)(f.data), f.len))
		}
	}
}

func (k *Kinds) makePointer(w *walker, t reflect.Type) {
	elem := t.Elem()
	var target *walker // found at the first use: its type may be this one's
	w.copy = func(c *copier, to, from unsafe.Pointer) {
		p := *(*unsafe.Pointer)(from)
		if p == nil {
			return
		}
		if target == nil {
			target = k.walker(elem)
		}
		made, seen := c.seen[place{p, target}]
		if !seen {
			made = reflect.New(elem).UnsafePointer()
			c.seen[place{p, target}] = made
			target.copy(c, made, p)
		}
		*(*unsafe.Pointer)(to) = made
	}
	w.sum = func(s *summer, from unsafe.Pointer) {
		p := *(*unsafe.Pointer)(from)
		if p == nil {
			s.word(0)
			return
		}
		if target == nil {
			target = k.walker(elem)
		}
		if n, seen := s.seen[place{p, target}]; seen {
			s.word(n + 2)
			return
		}
		s.seen[place{p, target}] = uint64(len(s.seen))
		s.word(1)
		target.sum(s, p)
	}
}

func (k *Kinds) makeMap(w *walker, t reflect.Type) {
	key, elem := k.walker(t.Key()), k.walker(t.Elem())
	w.copy = func(c *copier, to, from unsafe.Pointer) {
		m := reflect.NewAt(t, from).Elem()
		if m.IsNil() {
			return
		}
		made := reflect.MakeMapWithSize(t, m.Len())
		reflect.NewAt(t, to).Elem().Set(made)
		if m.Len() == 0 {
			return
		}
		was, is := entry(t), entry(t)
		for each := m.MapRange(); each.Next(); {
			was.key.SetIterKey(each)
			was.elem.SetIterValue(each)
			is.key.SetZero()
			is.elem.SetZero()
			key.copy(c, is.keyAt, was.keyAt)
			elem.copy(c, is.elemAt, was.elemAt)
			made.SetMapIndex(is.key, is.elem)
		}
	}
	w.sum = func(s *summer, p unsafe.Pointer) {
		m := reflect.NewAt(t, p).Elem()
		s.word(uint64(m.Len()))
		if m.Len() == 0 {
			return
		}
		// In the order of the keys' own sums, for what the elements share is numbered in the order in which it is met.
		type row struct {
			sum  uint64
			elem unsafe.Pointer
		}
		rows := make([]row, 0, m.Len())
		for each := m.MapRange(); each.Next(); {
			e := entry(t)
			e.key.SetIterKey(each)
			e.elem.SetIterValue(each)
			alone := summer{h: seed, seen: s.seen}
			key.sum(&alone, e.keyAt)
			rows = append(rows, row{alone.h, e.elemAt})
		}
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.sum, b.sum) })
		for _, r := range rows {
			s.word(r.sum)
			elem.sum(s, r.elem)
		}
	}
}

// room is a place for one entry of a map.
type room struct {
	key, elem     reflect.Value
	keyAt, elemAt unsafe.Pointer
}

func entry(t reflect.Type) room {
	k, e := reflect.New(t.Key()), reflect.New(t.Elem())
	return room{k.Elem(), e.Elem(), k.UnsafePointer(), e.UnsafePointer()}
}

func (k *Kinds) makeInterface(w *walker, t reflect.Type) {
	w.copy = func(c *copier, to, from unsafe.Pointer) {
		v := reflect.NewAt(t, from).Elem()
		if v.IsNil() {
			return
		}
		was := reflect.New(v.Elem().Type())
		was.Elem().Set(v.Elem())
		is := reflect.New(v.Elem().Type())
		k.walker(v.Elem().Type()).copy(c, is.UnsafePointer(), was.UnsafePointer())
		reflect.NewAt(t, to).Elem().Set(is.Elem())
	}
	w.sum = func(s *summer, p unsafe.Pointer) {
		v := reflect.NewAt(t, p).Elem()
		if v.IsNil() {
			s.word(0)
			return
		}
		is := reflect.New(v.Elem().Type())
		is.Elem().Set(v.Elem())
		s.bytes([]byte(v.Elem().Type().String()))
		k.walker(v.Elem().Type()).sum(s, is.UnsafePointer())
	}
}
