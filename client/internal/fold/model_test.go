// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire"
)

// record is one of a model log: a tombstone when it has no value.
type record struct {
	key    string
	value  bool
	offset uint64
}

// log is a shard of the model: its records, of which those below start are gone.
type log struct {
	records []record
	start   uint64
}

func (l *log) end() uint64 { return uint64(len(l.records)) }

// values is what the log comes to: the offset of each key's value.
func (l *log) values() map[string]uint64 {
	out := map[string]uint64{}
	for _, r := range l.records {
		delete(out, r.key)
		if r.value {
			out[r.key] = r.offset
		}
	}
	return out
}

// frame is something on its way to the client.
type frame func(r *rig)

// rig is a watch, the broker that serves it, the two ways on which frames come, and a reader that folds.
type rig struct {
	fail     func(string, ...any)
	logs     []log
	w        *Watch
	conflate bool

	control []frame // answers and history, in order
	feeds   []feed  // live records of each shard, in order
	asked   []int   // how often each shard was asked for: what belongs to an asking before the last is not for the watch
	lane    []Start

	// The reader's.
	state    map[string]uint64 // by key: the offset, of values only
	versions map[string]uint64 // by key: all below this offset was told
	listing  bool
	after    string // of the list
}

type feed struct {
	on     bool
	next   uint64
	frames []frame
}

func newRig(fail func(string, ...any), limit int64, conflate bool, shards int) *rig {
	return &rig{
		fail: fail, logs: make([]log, shards), asked: make([]int, shards), feeds: make([]feed, shards), lane: make([]Start, shards), w: New(limit, conflate, shards, nil),
		conflate: conflate, state: map[string]uint64{}, versions: map[string]uint64{}, listing: true,
	}
}

// key belongs to one shard.
func key(shard, n int) string { return fmt.Sprintf("%c%d", 'a'+n, shard) }

func (r *rig) write(shard, n int, value bool) {
	l := &r.logs[shard]
	l.records = append(l.records, record{key: key(shard, n), value: value, offset: l.end()})
}

func change(x record) *Change {
	c := &Change{Kind: Deleted, Key: x.key, Offset: x.offset, Generation: 1, Before: 1}
	if x.value {
		c.Kind = Put
	}
	return c
}

// ask lets the broker begin to watch a shard.
func (r *rig) ask(slot int) {
	at, placed := r.w.Ask(slot)
	l, f := &r.logs[slot], &r.feeds[slot]
	if !f.on {
		*f = feed{on: true, next: l.end()}
	}
	from := l.end()
	how := wire.HowLive
	switch {
	case placed && at.Offset < l.start:
		how = wire.HowReset
	case placed && at.Offset < from:
		how = wire.HowHistory
	}
	r.asked[slot]++
	id := r.asked[slot]
	send := func(f func() Outcome) {
		r.control = append(r.control, func(r *rig) {
			if r.asked[slot] == id {
				r.does(slot, f())
			}
		})
	}
	send(func() Outcome { return r.w.Watched(slot, from, 1, how) })
	if how != wire.HowHistory {
		return
	}
	for _, x := range l.records[at.Offset:from] {
		send(func() Outcome { return r.w.History(slot, change(x)) })
	}
	send(func() Outcome { return r.w.Done(slot) })
}

// does what the watch says.
func (r *rig) does(slot int, o Outcome) {
	switch o {
	case FellBehind:
		r.asked[slot]++
	case MustReset:
		for i := range r.logs {
			r.asked[i]++
		}
		r.w.Reset()
		r.state, r.listing, r.after = map[string]uint64{}, true, ""
		r.versions = map[string]uint64{}
	case GoOn:
	}
}

// deliver puts the next live record of a shard on its way, and read takes it.
func (r *rig) deliver(slot int) {
	l, f := &r.logs[slot], &r.feeds[slot]
	if !f.on || f.next == l.end() {
		return
	}
	x := l.records[f.next]
	f.next++
	f.frames = append(f.frames, func(r *rig) {
		r.does(slot, r.w.Live(slot, change(x)))
		r.lane[slot] = Start{Offset: x.offset + 1, Generation: 1}
	})
}

func (r *rig) read(from *[]frame) {
	if len(*from) == 0 {
		return
	}
	f := (*from)[0]
	*from = slices.Delete(*from, 0, 1)
	f(r)
}

// lose drops the connection with all that is on its way.
func (r *rig) lose() {
	r.control = nil
	for i := range r.feeds {
		r.feeds[i] = feed{}
		r.w.Ended(i, r.lane[i])
		r.lane[i] = Start{}
	}
}

// page reads a page of the snapshot of every shard, up to the same key, and gives it to the reader. Its entries are newer
// than it says by up to lag records.
func (r *rig) page(upTo string, lag uint64) {
	if !r.listing || !r.w.Placed() || upTo <= r.after && upTo != "" {
		return
	}
	last := upTo == ""
	for i := range r.logs {
		asOf := max(r.w.Base(i), r.logs[i].end()-min(lag, r.logs[i].end()))
		if !r.w.Listed(i, upTo, last, asOf) {
			r.fail("a fresh page is refused")
		}
		now := r.logs[i].values()
		for n := range 5 {
			k := key(i, n)
			if k <= r.after || !last && k > upTo {
				continue
			}
			r.versions[k] = asOf // exclusive
			if offset, ok := now[k]; ok {
				r.state[k] = offset
				if offset >= asOf {
					r.w.Newer(i, k, offset)
					r.versions[k] = offset + 1
				}
			}
		}
	}
	r.after, r.listing = upTo, !last
}

// take gives the reader one change.
func (r *rig) take() bool {
	if r.listing {
		return false
	}
	c, slot, skipped, ok := r.w.Take()
	if !ok {
		return false
	}
	if skipped > 0 && !r.conflate {
		r.fail("a change says that it stands for others")
	}
	next := r.versions[c.Key]
	if c.Offset < next {
		r.fail("key %s: offset %d comes when all below %d was told", c.Key, c.Offset, next)
	}
	between := 0
	for _, x := range r.logs[slot].records {
		if x.key == c.Key && x.offset >= next && x.offset < c.Offset {
			between++
		}
	}
	if between > skipped || between < skipped && !r.conflate {
		r.fail("key %s: %d changes from offset %d to %d, and %d were said to be skipped", c.Key, between, next, c.Offset, skipped)
	}
	delete(r.state, c.Key)
	if c.Kind == Put {
		r.state[c.Key] = c.Offset
	}
	r.versions[c.Key] = c.Offset + 1
	return true
}

func (r *rig) askIdle() {
	r.w.CatchUp(func(int) {})
	for i := range r.logs {
		if r.w.State(i) == Idle {
			r.ask(i)
		}
	}
}

// settle lets everything come to its end.
func (r *rig) settle() {
	for range 100_000 {
		r.askIdle()
		for i := range r.feeds {
			r.deliver(i)
			r.read(&r.feeds[i].frames)
		}
		r.read(&r.control)
		if r.page("", 0); r.take() || r.listing || len(r.control) > 0 {
			continue
		}
		settled := true
		for i := range r.logs {
			settled = settled && r.w.State(i) == Live && r.feeds[i].next == r.logs[i].end() && len(r.feeds[i].frames) == 0
		}
		if settled {
			return
		}
	}
	r.fail("it never ends")
}

// S10: whatever the order of answers, history, live changes, pages, losses and reclaim, and however slow the reader, what he
// folds is what the log comes to; nothing comes twice, and nothing that is not said to be skipped is.
func TestFoldEqualsTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 3).Draw(t, "shards")
		shard := rapid.IntRange(0, shards-1)
		limit := rapid.SampledFrom([]int64{1, 2 * changeCost, 4 * changeCost, 1 << 20}).Draw(t, "limit")
		r := newRig(t.Fatalf, limit, rapid.Bool().Draw(t, "conflate"), shards)
		for i := range shards {
			for n := range 3 {
				r.write(i, n, true)
			}
		}
		write := func(t *rapid.T) {
			r.write(shard.Draw(t, "shard"), rapid.IntRange(0, 4).Draw(t, "key"), rapid.Bool().Draw(t, "value"))
		}
		deliver := func(t *rapid.T) { r.deliver(shard.Draw(t, "shard")) }
		live := func(t *rapid.T) { r.read(&r.feeds[shard.Draw(t, "shard")].frames) }
		control := func(*rapid.T) { r.read(&r.control) }
		t.Repeat(map[string]func(*rapid.T){
			"write": write, "write2": write, "deliver": deliver, "deliver2": deliver, "live": live, "live2": live,
			"control": control, "control2": control, "control3": control,
			"ask":  func(*rapid.T) { r.askIdle() },
			"take": func(*rapid.T) { r.take() },
			"page": func(t *rapid.T) {
				r.page(rapid.SampledFrom([]string{"a", "b", "c9", "d", ""}).Draw(t, "up to"), rapid.Uint64Range(0, 3).Draw(t, "lag"))
			},
			"lose": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "luck") == 0 {
					r.lose()
				}
			},
			"reclaim": func(t *rapid.T) {
				l := &r.logs[shard.Draw(t, "shard")]
				l.start = uint64(rapid.IntRange(int(l.start), int(l.end())).Draw(t, "start"))
			},
		})
		r.settle()
		want := map[string]uint64{}
		for i := range r.logs {
			maps.Copy(want, r.logs[i].values())
		}
		if fmt.Sprint(r.state) != fmt.Sprint(want) {
			t.Fatalf("the reader has %v, the log %v", r.state, want)
		}
		if r.w.held != 0 {
			t.Fatalf("an empty watch says that it holds %d bytes", r.w.held)
		}
	})
}
