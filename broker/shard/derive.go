// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Op is how a record is made from what its key holds.
type Op uint8

// The operations.
const (
	OpAdd   Op = iota + 1 // the number that the key holds, 0 when it is absent, and the record's, both in decimal
	OpTouch               // the key's value and headers as they are, with the record's time to live
)

// Derive says that a record of a batch is to be made from what its key holds.
type Derive struct {
	Record int // index in the batch
	Op     Op
}

// maxSums bounds what is remembered of counters, so that who adds again need not read the log.
const (
	maxSums   = 4096
	maxSumKey = 256 // bytes of the longest key that is remembered
)

// sum is what a counter stands at, and the offset of the record that says so.
type sum struct {
	offset uint64
	value  int64
}

// derive makes the batch of a publish whose records follow from what the keys hold, in its turn among the appends: between
// the reading and the append nothing can happen. It answers one that is refused. What the counters come to is for sums.note
// once the batch has its place: until then something else may refuse it.
func (c *Core) derive(now int64, p *Publish, eff *Effects) (tell []int64, counters map[string]sum, ok bool) {
	if len(p.Derives) == 0 {
		return nil, nil, true
	}
	if err := c.keysReady(now, eff); err != nil {
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: err})
		return nil, nil, false
	}
	d := derivation{core: c, at: c.at(now), own: map[string]batch.Record{}, build: batch.NewBuilder(batch.Limits{})}
	made, err := d.run(p)
	if err != nil {
		c.refuseBehind(p, d.rests, err, eff)
		return nil, nil, false
	}
	p.Batch, p.Derived = made, true
	return d.sums, d.counters, true
}

// derivation makes one batch.
type derivation struct {
	core  *Core
	at    int64
	own   map[string]batch.Record // what the batch itself says of a key, so far
	build *batch.Builder

	sums     []int64
	counters map[string]sum
	rests    uint64 // the pending record that a refusal rests on: the offset behind it
}

func (d *derivation) run(p *Publish) (batch.Batch, *code.Error) {
	records := p.Batch.Records()
	next := 0
	for i := 0; ; i++ {
		var r batch.Record
		ok, err := records.Next(&r)
		if err != nil {
			return nil, code.New(code.BadRequest, "the batch cannot be read: %w", err)
		}
		if !ok {
			break
		}
		if next < len(p.Derives) && p.Derives[next].Record == i {
			if err := d.record(&r, p.Derives[next].Op, d.core.nextOffset+uint64(i)); err != nil {
				return nil, err.With(code.DetailIndex, uint64(i))
			}
			next++
		}
		if r.Key != nil {
			d.own[string(r.Key)] = r.Clone()
		}
		if err := d.build.Add(r); err != nil {
			return nil, doesNotFit(p.Derives[:next], i, err)
		}
	}
	if next < len(p.Derives) {
		return nil, code.New(code.BadRequest, "record %d of a batch of %d is to be made, or twice", p.Derives[next].Record, p.Batch.Count())
	}
	compression := batch.None
	if p.Batch.Compressed() {
		compression = batch.Zstd
	}
	made, err := d.build.Build(p.Batch.ProducerID(), p.Batch.ProducerSequence(), compression)
	if err != nil {
		return nil, code.New(code.BadRequest, "the batch cannot be made: %w", err)
	}
	return made, nil
}

// doesNotFit refuses what is made of a batch that grew too large at record i. Only values that are touched are larger than
// what was sent, and so the last of them is named: its client sends it in a batch of its own.
func doesNotFit(made []Derive, i int, err error) *code.Error {
	if !errors.Is(err, batch.ErrFull) && !errors.Is(err, batch.ErrTooLarge) {
		return code.New(code.BadRequest, "record %d cannot be made: %w", i, err).With(code.DetailIndex, uint64(i))
	}
	for _, x := range slices.Backward(made) {
		if x.Op == OpTouch {
			i = x.Record
			break
		}
	}
	return code.New(code.TooLarge, "what is touched does not fit beside the others of its batch: %w", err).
		With(code.DetailLimit, batch.MaxBatch).With(code.DetailIndex, uint64(i))
}

// record makes one record, which will have this offset.
func (d *derivation) record(r *batch.Record, op Op, offset uint64) *code.Error {
	if r.Key == nil {
		return code.New(code.BadRequest, "a record without a key follows from nothing")
	}
	is, until, found, err := d.current(r.Key, op)
	if err != nil {
		return err
	}
	switch op {
	case OpAdd:
		return d.add(r, is, until, found, offset)
	case OpTouch:
		if !found {
			return code.New(code.NotFound, "the key %.100q is absent: nothing was touched", r.Key)
		}
		r.Value, r.Headers = is.Value, withoutDedupID(is.Headers)
		return nil
	default:
		return code.New(code.BadRequest, "operation %d is unknown", op)
	}
}

// add makes the sum. Without a time to live of its own the counter keeps the deadline that it has.
func (d *derivation) add(r *batch.Record, is batch.Record, until int64, found bool, offset uint64) *code.Error {
	delta, err := strconv.ParseInt(string(r.Value), 10, 64)
	if err != nil {
		return code.New(code.BadRequest, "what is to be added is no decimal number of 64 bits: %.40q", r.Value)
	}
	var have int64
	if found {
		if have, err = strconv.ParseInt(string(is.Value), 10, 64); err != nil {
			return code.New(code.NotANumber, "the key %.100q holds no decimal number of 64 bits, but %d bytes of something else: nothing was added", r.Key, len(is.Value))
		}
		if until != 0 && r.TTL == 0 {
			r.TTL = time.Duration(until-d.at) * time.Microsecond
		}
	}
	if delta > 0 && have > math.MaxInt64-delta || delta < 0 && have < math.MinInt64-delta {
		return code.New(code.NotANumber, "the key %.100q holds %d: with %d it would leave the 64 bits of a number, and nothing was added", r.Key, have, delta)
	}
	have += delta
	r.Value = strconv.AppendInt(nil, have, 10)
	d.sums = append(d.sums, have)
	if d.counters == nil {
		d.counters = map[string]sum{}
	}
	d.counters[string(r.Key)] = sum{offset, have}
	return nil
}

// current is what the key holds, and until when; for an addition perhaps without its headers.
func (d *derivation) current(key []byte, op Op) (r batch.Record, until int64, found bool, refusal *code.Error) {
	if own, ok := d.own[string(key)]; ok {
		if own.TTL > 0 {
			until = d.at + own.TTL.Microseconds()
		}
		return own, until, own.Value != nil, nil
	}
	n, known := d.core.keys.newest(key)
	if n.pending {
		d.rests = max(d.rests, n.Offset+1)
	}
	if !known || n.version(d.core.start, d.at) == 0 {
		return batch.Record{}, 0, false, nil
	}
	if s, ok := d.core.sums.byKey[string(key)]; ok && op == OpAdd && s.offset == n.Offset {
		return batch.Record{Value: strconv.AppendInt(nil, s.value, 10)}, n.Until, true, nil
	}
	r, err := d.core.read(n)
	if err != nil {
		// Nothing is stored, and it may be different a moment later.
		return batch.Record{}, 0, false, code.New(code.Unavailable, "the value of the key %.100q cannot be read: %w", key, err).Retry(keysFailed)
	}
	return r, n.Until, true, nil
}

// errNoReader is of a core whose shell reads nothing.
var errNoReader = errors.New("nobody reads the log")

// read returns the record that an entry names: from what is pending, or from the log.
func (c *Core) read(n newestKey) (batch.Record, error) {
	if n.Sequence >= c.mark && int(n.Sequence-c.mark) < len(c.pending) {
		return FindRecord(c.pending[n.Sequence-c.mark].batch, n.Offset)
	}
	if c.cfg.Read == nil {
		return batch.Record{}, errNoReader
	}
	return c.cfg.Read(n.Sequence, n.Offset)
}

// FindRecord returns a copy of the record of a batch that has this offset; of a carried one, its origin's.
func FindRecord(b batch.Batch, offset uint64) (batch.Record, error) {
	records := b.Records()
	for {
		var r batch.Record
		ok, err := records.Next(&r)
		if err != nil {
			return batch.Record{}, err
		}
		if !ok {
			return batch.Record{}, fmt.Errorf("batch %d has no record of offset %d", b.Sequence(), offset)
		}
		if records.Offset() == offset {
			return r.Clone(), nil
		}
	}
}

// withoutDedupID leaves out an id that says that the first record was stored: this is another one.
func withoutDedupID(headers []batch.Header) []batch.Header {
	if len(headers) > 0 && headers[0].Key == batch.DedupHeader {
		return slices.Clone(headers[1:])
	}
	return headers
}

// sums is what the shard remembers of its counters.
type sums struct{ byKey map[string]sum }

func (s *sums) note(made map[string]sum) {
	if len(made) == 0 {
		return
	}
	if s.byKey == nil || len(s.byKey) >= maxSums {
		s.byKey = map[string]sum{}
	}
	for key, x := range made {
		if len(key) <= maxSumKey && len(s.byKey) < maxSums { // of another one the older sum has the wrong offset, and is not used
			s.byKey[key] = x
		}
	}
}

// cut forgets what was to have an offset from at on: another record gets it.
func (s *sums) cut(at uint64) {
	maps.DeleteFunc(s.byKey, func(_ string, x sum) bool { return x.offset >= at })
}

// SumsOf reads the sums that a batch of counters tells, in the order of what was to be added: for who asks again.
func SumsOf(records []batch.Record, derives []Derive) ([]int64, bool) {
	var out []int64
	for _, x := range derives {
		if x.Op != OpAdd {
			continue
		}
		if x.Record >= len(records) {
			return nil, false
		}
		v, err := strconv.ParseInt(string(records[x.Record].Value), 10, 64)
		if err != nil {
			return nil, false
		}
		out = append(out, v)
	}
	return out, true
}
