// SPDX-License-Identifier: Apache-2.0

package batch

const (
	opPeek     = "peek batch"
	opStored   = "check stored batch"
	opProduced = "check produced batch"
)

// Peek returns the size of the stored batch that begins at b, of which HeaderSize bytes suffice. It says that a
// batch seems to begin here and how much to read for CheckStored; it checks no checksum.
func Peek(b []byte) (int, error) {
	if len(b) < HeaderSize {
		return 0, fault(opPeek, len(b), ErrShort)
	}
	if le.Uint32(b[posMagic:]) != magic {
		return 0, fault(opPeek, posMagic, ErrMagic)
	}
	if b[posVersion] != Version {
		return 0, fault(opPeek, posVersion, ErrVersion)
	}
	size := le.Uint32(b[posSize:])
	if size < HeaderSize || size > MaxBatch {
		return 0, fault(opPeek, posSize, ErrSize)
	}
	return int(size), nil
}

// CheckStored checks both checksums and the header of the stored batch that begins at b, and returns exactly its
// bytes; what follows them is left to the caller. It does not walk the records: the checksum says that they are
// those the leader checked.
func CheckStored(b []byte) (Batch, error) {
	size, err := Peek(b)
	if err != nil {
		return nil, err
	}
	if checksum(b[posMagic:assignedSize]) != le.Uint32(b[posAssignedCRC:]) {
		return nil, fault(opStored, posAssignedCRC, ErrChecksum)
	}
	if len(b) < size {
		return nil, fault(opStored, len(b), ErrShort)
	}
	batch := Batch(b[:size:size])
	if checksum(batch[posSize:]) != le.Uint32(batch[posProducedCRC:]) {
		return nil, fault(opStored, posProducedCRC, ErrChecksum)
	}
	if pos, err := batch.checkHeader(); err != nil {
		return nil, fault(opStored, pos, err)
	}
	return batch, nil
}

// CheckProduced checks everything about a batch that a producer sent, so that what is stored can be read for ever:
// empty assigned part, checksum, header, the meta of every record and, unless compressed, every header section; and
// that the attributes say of the records exactly what is so.
// b must be one batch and nothing else. It never decompresses and never allocates.
func CheckProduced(b []byte, lim Limits) (Batch, error) {
	if len(b) < HeaderSize {
		return nil, fault(opProduced, len(b), ErrShort)
	}
	batch := Batch(b)
	for i, x := range b[:assignedSize] {
		if x != 0 {
			return nil, fault(opProduced, i, ErrAssigned)
		}
	}
	if b[posVersion] != Version {
		return nil, fault(opProduced, posVersion, ErrVersion)
	}
	switch size := le.Uint32(b[posSize:]); {
	case size < HeaderSize || size > MaxBatch || uint64(size) < uint64(len(b)):
		return nil, fault(opProduced, posSize, ErrSize)
	case uint64(size) > uint64(len(b)):
		return nil, fault(opProduced, len(b), ErrShort)
	}
	if checksum(b[posSize:]) != le.Uint32(b[posProducedCRC:]) {
		return nil, fault(opProduced, posProducedCRC, ErrChecksum)
	}
	if batch.Attributes()&^producerMaySet != 0 {
		return nil, fault(opProduced, posAttributes, ErrAttributes)
	}
	if pos, err := batch.checkHeader(); err != nil {
		return nil, fault(opProduced, pos, err)
	}
	if pos, err := batch.checkRecords(lim.Effective()); err != nil {
		return nil, fault(opProduced, pos, err)
	}
	return batch, nil
}

// checkHeader checks the produced part of a batch whose size is known to be that of b, and returns the position
// of what is wrong.
func (b Batch) checkHeader() (int, error) {
	attr := b.Attributes()
	switch {
	case b[posReserved] != 0:
		return posReserved, ErrAttributes
	case attr&^knownAttributes != 0 || attr&compressionMask > compressionZstd:
		return posAttributes, ErrAttributes
	}
	meta, plain := uint64(le.Uint32(b[posMetaSize:])), uint64(le.Uint32(b[posPlainSize:]))
	switch {
	case meta > uint64(len(b)-HeaderSize):
		return posMetaSize, ErrSize
	case plain > MaxBatch-HeaderSize-meta:
		return posPlainSize, ErrSize
	case !b.Compressed() && plain != uint64(len(b)-HeaderSize)-meta:
		return posPlainSize, ErrSize
	}
	if attr&AttrControl != 0 {
		return b.checkControlHeader(attr)
	}
	count, least := uint64(le.Uint32(b[posCount:])), uint64(minRecordMeta)
	switch {
	case attr&(AttrCheckpoint|AttrCheckpointStart) != 0:
		return posAttributes, ErrAttributes
	case attr&AttrDedup != 0 && (count != 1 || b.Compressed()):
		return posAttributes, ErrDedup
	case attr&AttrDedup != 0 && b.HasSettlement():
		return posAttributes, ErrSettlement
	}
	if attr&(AttrCarried|AttrExpired) != 0 {
		if pos, err := b.checkLeaderHeader(attr); err != nil {
			return pos, err
		}
		if least = minCarriedMeta; b.IsExpired() {
			least = minExpiredMeta
		}
	}
	if b.HasSettlement() {
		left, pos, err := b.checkSettlement()
		if err != nil {
			return pos, err
		}
		meta = uint64(left)
	}
	switch {
	case count == 0 || count > maxDecodeCount || count*least > meta:
		return posCount, ErrCount
	case (b.ProducerID() == 0) != (b.ProducerSequence() == 0):
		return posProducerID, ErrProducer
	}
	return 0, nil
}

// checkLeaderHeader checks a batch of records that only a leader makes.
func (b Batch) checkLeaderHeader(attr Attr) (int, error) {
	switch {
	case b.IsCarried() && attr&^(AttrCarried|AttrScheduled|compressionMask) != 0, b.IsExpired() && attr != AttrExpired:
		return posAttributes, ErrAttributes
	case b.IsExpired() && b.PlainSize() != 0:
		return posPlainSize, ErrSize
	case b.ProducerID() != 0:
		return posProducerID, ErrProducer
	}
	return 0, nil
}

func (b Batch) checkControlHeader(attr Attr) (int, error) {
	count := uint64(le.Uint32(b[posCount:]))
	switch {
	case attr&(producerMaySet|AttrCarried|AttrExpired) != 0,
		attr&AttrCheckpointStart != 0 && attr&AttrCheckpoint == 0:
		return posAttributes, ErrAttributes
	case b.PlainSize() != 0:
		return posPlainSize, ErrSize
	case count == 0 || count > maxDecodeCount || count*minControlEntry > uint64(b.metaSize()):
		return posCount, ErrCount
	case b.ProducerID() != 0 || b.ProducerSequence() != 0:
		return posProducerID, ErrProducer
	case b.FirstTimestamp() != 0:
		return posFirstTime, ErrTimestamp
	}
	return 0, nil
}

// checkRecords walks every record against the limits.
func (b Batch) checkRecords(lim Limits) (int, error) {
	switch {
	case HeaderSize+b.metaSize()+b.PlainSize() > lim.Batch || b.Size() > lim.Batch:
		return posSize, ErrLimit
	case b.Count() > lim.Records:
		return posCount, ErrLimit
	}
	var (
		metas     Metas
		m         Meta
		scheduled bool
		body      = cursor{b: b.body()}
		mayDedup  = b.Attributes()&AttrDedup != 0
		dedup     bool
	)
	metas.reset(b)
	bodyStart := HeaderSize + b.metaSize()
	for metas.left > 0 {
		start := metas.c.pos
		metas.step(&m)
		if metas.c.err != nil {
			return HeaderSize + metas.c.at, metas.c.err
		}
		if len(m.Key) > lim.Key || m.HeadersSize > lim.HeaderBytes ||
			len(m.Key)+m.HeadersSize+m.ValueSize > lim.Record {
			return HeaderSize + start, ErrLimit
		}
		scheduled = scheduled || m.Delay|m.TTL != 0 || m.Priority != 0
		if b.Compressed() {
			continue
		}
		if m.HeadersSize > 0 {
			dedup = checkHeaders(&body, m.HeadersSize, lim.Headers, mayDedup)
		}
		body.bytes(m.ValueSize)
		if body.err != nil {
			return bodyStart + body.at, body.err
		}
	}
	switch metas.finish(); {
	case metas.c.err != nil:
		return HeaderSize + metas.c.at, metas.c.err
	case scheduled != b.Scheduled():
		return posAttributes, ErrSchedule
	case dedup != mayDedup:
		return posAttributes, ErrDedup
	}
	return 0, nil
}

// checkHeaders walks one header section of size bytes, and reports whether it begins with a dedup id, which it must
// not do unless the batch says so: an id that nobody sees would store a record twice without a word.
func checkHeaders(body *cursor, size, most int, mayDedup bool) (dedup bool) {
	start := body.pos
	c := cursor{b: body.bytes(size)}
	n := headerCount(&c)
	if n > most {
		c.fail(ErrLimit)
	}
	for i := range n {
		name := c.bytes(c.length())
		value := c.bytes(c.length())
		if c.err != nil {
			break
		}
		if i == 0 && string(name) == DedupHeader {
			if dedup = true; !mayDedup || !validDedupID(len(value)) {
				c.fail(ErrDedup)
			}
		}
	}
	c.end()
	if c.err != nil && body.err == nil {
		body.err, body.at = c.err, start+c.at
	}
	return dedup
}

// VerifyRecords walks a whole batch, body and entries too, decompressing if need be. It is for tools that must know
// whether everything can be read; the broker's way is CheckProduced.
func (b Batch) VerifyRecords() error {
	if b.IsControl() {
		_, err := b.Entries()
		return err
	}
	r := b.Records()
	var rec Record
	for {
		if ok, err := r.Next(&rec); err != nil || !ok {
			return err
		}
	}
}
