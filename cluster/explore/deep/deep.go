// SPDX-License-Identifier: Apache-2.0

// Package deep copies and fingerprints plain values, unexported fields included, by reflection: what pure cores are made of. It
// touches memory only, and refuses what is not plain, such as channels; functions are shared, and count as nothing.
//
// A pure core has no goroutine, no lock and no file in it, so that a copy of its memory is a copy of it, and two that hold
// the same behave alike. What is shared in a value is shared in its copy when it is pointed to as a whole: two slices of one
// array, or a pointer into a struct or a slice, become arrays and values of their own.
package deep

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Kinds knows what is special about some types, and remembers how values of each type are walked. It serves one goroutine.
type Kinds struct {
	walkers map[reflect.Type]*walker
	shared  map[reflect.Type]bool
	ignored map[reflect.Type]map[string]bool
}

// New returns Kinds that know of nothing special.
func New() *Kinds {
	return &Kinds{walkers: map[reflect.Type]*walker{}, shared: map[reflect.Type]bool{}, ignored: map[reflect.Type]map[string]bool{}}
}

// Share says that what values of this type point to never changes: copies point to the same, and fingerprints look inside.
func (k *Kinds) Share(t reflect.Type) { k.shared[t] = true }

// Ignore says that fields do not tell two values apart: counts of what happened, room that is kept for later. They are copied.
func (k *Kinds) Ignore(t reflect.Type, fields ...string) {
	if k.ignored[t] == nil {
		k.ignored[t] = map[string]bool{}
	}
	for _, f := range fields {
		if _, ok := t.FieldByName(f); !ok {
			panic(fmt.Sprintf("deep: %v has no field %s", t, f))
		}
		k.ignored[t][f] = true
	}
}

// Copy returns a copy of what p points to, which shares nothing with it that changes.
func Copy[T any](k *Kinds, p *T) *T {
	c := copier{seen: map[place]unsafe.Pointer{}}
	to := new(T)
	w := k.walker(reflect.TypeFor[T]())
	c.seen[place{unsafe.Pointer(p), w}] = unsafe.Pointer(to)
	w.copy(&c, unsafe.Pointer(to), unsafe.Pointer(p))
	return to
}

// Sum returns a fingerprint of what p points to: equal for values that are built alike, whatever the order of their maps and
// wherever they lie. An empty slice or map is as good as none.
func Sum[T any](k *Kinds, p *T) uint64 {
	w := k.walker(reflect.TypeFor[T]())
	s := summer{h: seed, seen: map[place]uint64{{unsafe.Pointer(p), w}: 0}}
	w.sum(&s, unsafe.Pointer(p))
	return s.h
}

// walker is how values of one type are copied and summed.
type walker struct {
	plain bool // no pointer in it: a copy of its bytes is a copy of it
	copy  func(c *copier, to, from unsafe.Pointer)
	sum   func(s *summer, p unsafe.Pointer)
}

// place is what a pointer points to. A struct and its first field lie at one address, and are two.
type place struct {
	at unsafe.Pointer
	w  *walker
}

// copier remembers where the copy of a pointer's target is, so that what was shared in a value is shared in its copy.
type copier struct{ seen map[place]unsafe.Pointer }

// walker returns how a type is walked. It is entered before it is made: types refer to themselves.
func (k *Kinds) walker(t reflect.Type) *walker {
	if w, ok := k.walkers[t]; ok {
		return w
	}
	w := &walker{}
	k.walkers[t] = w
	k.make(w, t)
	return w
}

func (k *Kinds) make(w *walker, t reflect.Type) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Uint8, reflect.Int16, reflect.Uint16, reflect.Int32, reflect.Uint32,
		reflect.Int, reflect.Uint, reflect.Int64, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64,
		reflect.Complex64, reflect.Complex128:
		w.plain, w.copy = true, copyBytes(t)
		w.sum = sumBytes(t.Size())
	case reflect.String:
		w.copy = copyBytes(t) // its bytes never change
		w.sum = func(s *summer, p unsafe.Pointer) { s.bytes([]byte(*(*string)(p))) }
	case reflect.Func:
		w.copy, w.sum = copyBytes(t), func(*summer, unsafe.Pointer) {}
	case reflect.Struct:
		k.makeStruct(w, t)
	case reflect.Array:
		k.makeArray(w, t)
	case reflect.Slice:
		k.makeSlice(w, t)
	case reflect.Pointer:
		k.makePointer(w, t)
	case reflect.Map:
		k.makeMap(w, t)
	case reflect.Interface:
		k.makeInterface(w, t)
	default: // Chan, UnsafePointer, Invalid
		panic(fmt.Sprintf("deep: %v is not plain", t))
	}
	if k.shared[t] {
		w.copy = copyBytes(t)
	}
}

// copyBytes copies the value itself and nothing that it points to. It goes through reflect, for the collector has to be told
// of pointers that are written.
func copyBytes(t reflect.Type) func(*copier, unsafe.Pointer, unsafe.Pointer) {
	switch t.Kind() {
	case reflect.Int, reflect.Uint, reflect.Int64, reflect.Uint64:
		return func(_ *copier, to, from unsafe.Pointer) { *(*uint64)(to) = *(*uint64)(from) }
	case reflect.Int32, reflect.Uint32:
		return func(_ *copier, to, from unsafe.Pointer) { *(*uint32)(to) = *(*uint32)(from) }
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		return func(_ *copier, to, from unsafe.Pointer) { *(*byte)(to) = *(*byte)(from) }
	case reflect.String:
		return func(_ *copier, to, from unsafe.Pointer) { *(*string)(to) = *(*string)(from) }
	default:
	}
	return func(_ *copier, to, from unsafe.Pointer) {
		reflect.NewAt(t, to).Elem().Set(reflect.NewAt(t, from).Elem())
	}
}

// field is one field of a struct that is walked.
type field struct {
	at      uintptr
	w       *walker
	ignored bool
}

func (k *Kinds) makeStruct(w *walker, t reflect.Type) {
	fields := make([]field, 0, t.NumField())
	w.plain = true
	for i := range t.NumField() {
		f := t.Field(i)
		fields = append(fields, field{f.Offset, k.walker(f.Type), k.ignored[t][f.Name]})
		w.plain = w.plain && fields[i].w.plain
	}
	if w.plain {
		w.copy = copyBytes(t)
	} else {
		w.copy = func(c *copier, to, from unsafe.Pointer) {
			for _, f := range fields {
				f.w.copy(c, unsafe.Add(to, f.at), unsafe.Add(from, f.at))
			}
		}
	}
	w.sum = func(s *summer, p unsafe.Pointer) {
		for _, f := range fields {
			if !f.ignored {
				f.w.sum(s, unsafe.Add(p, f.at))
			}
		}
	}
}

func (k *Kinds) makeArray(w *walker, t reflect.Type) {
	elem, size, n := k.walker(t.Elem()), t.Elem().Size(), t.Len()
	w.plain = elem.plain
	w.copy = func(c *copier, to, from unsafe.Pointer) {
		for i := range n {
			elem.copy(c, unsafe.Add(to, uintptr(i)*size), unsafe.Add(from, uintptr(i)*size))
		}
	}
	if w.plain {
		w.copy = copyBytes(t)
	}
	w.sum = func(s *summer, p unsafe.Pointer) {
		for i := range n {
			elem.sum(s, unsafe.Add(p, uintptr(i)*size))
		}
	}
	if isBytes(t.Elem()) {
		w.sum = func(s *summer, p unsafe.Pointer) { s.bytes(unsafe.Slice((*byte)(p), n)) }
	}
}

func isBytes(t reflect.Type) bool { return t.Kind() == reflect.Uint8 }
