// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"
	"sort"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// left is a record that was left out of its batch, and why. Its index is that of its future.
type left struct {
	index uint32
	err   *Error
}

// derived notes that the leader is to make the record that was just added at index.
func (f *flight) derived(rec *Record, index int) {
	if op := rec.options.derive; op != 0 {
		f.derives = append(f.derives, wire.Derive{Record: uint32(index), Op: op})
	}
}

// place is where the record of a future is in the batch now that others were left out, or why it is not.
func (f *flight) place(index uint32) (uint32, *Error) {
	shift := uint32(0)
	for _, out := range f.out {
		switch {
		case out.index == index:
			return 0, out.err
		case out.index < index:
			shift++
		}
	}
	return index - shift, nil
}

// sum is what the record of a future, an increment that is stored, came to; ok is false when the broker did not say.
func (f *flight) sum(index uint32) (sum int64, ok bool) {
	at, err := f.place(index)
	i := sort.Search(len(f.derives), func(i int) bool { return f.derives[i].Record >= at })
	if err != nil || i == len(f.derives) || f.derives[i].Record != at {
		return 0, false
	}
	adds := i
	if len(f.sums) < len(f.derives) { // some are no increments
		adds = 0
		for _, d := range f.derives[:i] {
			if d.Op == wire.OpAdd {
				adds++
			}
		}
	}
	if adds >= len(f.sums) {
		return 0, false
	}
	return f.sums[adds], true
}

// leaveOut takes the record that a refusal is about out of the batch, so that those who share it by chance are not refused
// with it: nothing of the batch was stored. It reports false when the refusal is about all of them.
func (f *flight) leaveOut(err *Error, pool *builders) bool {
	n, about := err.Details.Get(code.DetailIndex)
	live := f.count - len(f.out)
	if !about || f.alone || err.Class != Fatal || live < 2 || n >= uint64(live) || f.encoded == nil {
		return false
	}
	b := pool.get()
	if refill(b, f.encoded, int(n)) != nil {
		pool.put(b)
		return false
	}
	f.builder, f.encoded = b, nil
	at := uint32(n)
	f.derives = slices.DeleteFunc(f.derives, func(d wire.Derive) bool { return d.Record == at })
	for i := range f.derives {
		if f.derives[i].Record > at {
			f.derives[i].Record--
		}
	}
	index := at
	for _, out := range f.out { // in order of their indexes
		if out.index <= index {
			index++
		}
	}
	i := sort.Search(len(f.out), func(i int) bool { return f.out[i].index > index })
	f.out = slices.Insert(f.out, i, left{index: index, err: err})
	return true
}

// refill copies the records of a batch into a builder, all but the one at skip, and what it settles.
func refill(b *batch.Builder, from batch.Batch, skip int) error {
	s, ok, err := from.Settlement()
	if err == nil && ok {
		err = b.SetSettlement(s)
	}
	if err != nil {
		return err
	}
	records := from.Records()
	for i := 0; ; i++ {
		var rec batch.Record
		ok, err := records.Next(&rec)
		if err != nil || !ok {
			return err
		}
		if i == skip {
			continue
		}
		if err := b.Add(rec); err != nil {
			return err
		}
	}
}
