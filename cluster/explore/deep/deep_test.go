// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"reflect"
	"testing"

	"margay.dev/cluster/explore/deep"
)

type node struct {
	name string
	next *node
	prev *node
}

type bytes []byte

type odd struct {
	numbers  map[int]*node
	list     *node
	mixed    any
	raw      bytes
	rows     [][]int
	fixed    [3]string
	count    int
	call     func() int
	self     *odd
	by       map[[2]int16]bool
	zero     *struct{}
	small    [2]uint16
	nothing  map[string]int
	embedded struct{ a, b int8 }
}

func made(order ...int) *odd {
	a, b := &node{name: "a"}, &node{name: "b"}
	a.next, b.prev = b, a
	o := &odd{
		numbers: map[int]*node{}, list: a, mixed: &node{name: "any"}, raw: bytes("raw"), rows: [][]int{{1}, nil, {2, 3}},
		fixed: [3]string{"x", "", "z"}, call: func() int { return 7 }, by: map[[2]int16]bool{{1, 2}: true}, zero: &struct{}{},
	}
	for _, i := range order {
		o.numbers[i] = [2]*node{a, b}[i%2]
	}
	o.self = o
	return o
}

// A copy is the same, holds together as the original does, and shares nothing with it that changes.
func TestACopyStandsAlone(t *testing.T) {
	k := deep.New()
	was := made(1, 2, 3)
	is := deep.Copy(k, was)
	if deep.Sum(k, is) != deep.Sum(k, was) {
		t.Fatal("a copy has another fingerprint")
	}
	if is.self != is || is.numbers[1] != is.numbers[3] || is.numbers[2] != is.list || is.list.next.prev != is.list {
		t.Fatal("what was shared is not")
	}
	before := deep.Sum(k, is)
	was.numbers[1].name = "changed"
	delete(was.numbers, 2)
	was.raw[0], was.rows[0][0], was.fixed[0] = 'x', 9, "y"
	was.mixed.(*node).name = "changed"
	was.by[[2]int16{3, 4}] = false
	if deep.Sum(k, is) != before || is.mixed.(*node).name != "any" || is.rows[0][0] != 1 || string(is.raw) != "raw" || is.call() != 7 {
		t.Fatalf("the copy changed with the original: %+v", is)
	}
}

// Each difference that a core could act on makes another fingerprint; the order in which maps were filled is none.
func TestFingerprintsTellApart(t *testing.T) {
	k := deep.New()
	sum := func(change func(*odd)) uint64 {
		o := made(1, 2, 3, 4, 5)
		if change != nil {
			change(o)
		}
		return deep.Sum(k, o)
	}
	if sum(nil) != deep.Sum(k, made(5, 3, 1, 2, 4)) {
		t.Fatal("the order in which a map is filled counts")
	}
	seen := map[uint64]int{sum(nil): -1}
	for i, change := range []func(*odd){
		func(o *odd) { o.numbers[1] = o.list },
		func(o *odd) { c := *o.list.next; o.numbers[3] = &c }, // alike, and not shared
		func(o *odd) { o.numbers[6] = nil },
		func(o *odd) { o.list = nil },
		func(o *odd) { o.mixed = node{name: "any"} },
		func(o *odd) { o.mixed = nil },
		func(o *odd) { o.raw = bytes("rav") },
		func(o *odd) { o.raw = bytes("raw\x00") },
		func(o *odd) { o.rows = [][]int{{1, 2}, nil, {3}} },
		func(o *odd) { o.fixed[1] = "y" },
		func(o *odd) { o.count = 1 },
		func(o *odd) { o.self = nil },
		func(o *odd) { o.by[[2]int16{1, 2}] = false },
		func(o *odd) { o.small[1] = 1 },
		func(o *odd) { o.embedded.a = 1 },
		func(o *odd) { o.embedded.b = 1 },
	} {
		if was, twice := seen[sum(change)]; twice {
			t.Errorf("change %d has the fingerprint of %d", i, was)
		}
		seen[sum(change)] = i
	}
	for i, same := range []func(*odd){
		func(o *odd) { o.nothing = map[string]int{} },
		func(o *odd) { o.rows[1] = []int{} },
		func(o *odd) { o.raw = append(make(bytes, 0, 100), o.raw...) },
		func(o *odd) { o.call = nil },
	} {
		if sum(same) != sum(nil) {
			t.Errorf("%d counts", i)
		}
	}
}

func TestSharedAndIgnored(t *testing.T) {
	k := deep.New()
	k.Share(reflect.TypeFor[bytes]())
	k.Ignore(reflect.TypeFor[odd](), "count")
	was := made(1)
	is := deep.Copy(k, was)
	if &is.raw[0] != &was.raw[0] {
		t.Error("what is shared was copied")
	}
	before := deep.Sum(k, is)
	if is.count++; deep.Sum(k, is) != before {
		t.Error("what is ignored counts")
	}
	if deep.Copy(k, is).count != 1 {
		t.Error("what is ignored is not copied")
	}
	if is.raw[0]++; deep.Sum(k, is) == before {
		t.Error("what is shared does not count")
	}
}

func TestWhatIsNotPlainIsRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a channel was copied")
		}
	}()
	deep.Copy(deep.New(), &struct{ c chan int }{})
}

func BenchmarkCopy(b *testing.B) {
	k, o := deep.New(), made(1, 2, 3)
	b.ReportAllocs()
	for b.Loop() {
		deep.Copy(k, o)
	}
}

func BenchmarkSum(b *testing.B) {
	k, o := deep.New(), made(1, 2, 3)
	b.ReportAllocs()
	for b.Loop() {
		deep.Sum(k, o)
	}
}
