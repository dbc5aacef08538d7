// SPDX-License-Identifier: Apache-2.0

package batch

import "margay.dev/wire/internal/compress"

// Reader walks the records of a batch. Key and Value of a record alias the batch, or the decompressed body that
// the reader made for it, and stay valid as long as they are held; the Headers slice is reused by the next Next.
type Reader struct {
	b       Batch
	metas   Metas
	body    cursor
	opened  bool
	headers []Header
	section []byte
}

// Records returns a walk over all records; a control batch has none. The body is decompressed at the first Next,
// once, into at most the declared plain size.
func (b Batch) Records() *Reader {
	r := &Reader{}
	r.Reset(b)
	return r
}

// Reset points the reader at another batch, or at nothing, and keeps what it has allocated.
func (r *Reader) Reset(b Batch) {
	r.b, r.body, r.opened, r.section = b, cursor{}, false, nil
	r.metas.reset(b)
}

// Offset is that of the record that Next returned last; of a carried one, that which it was first given.
func (r *Reader) Offset() uint64 { return r.metas.Offset() }

// Generation is that of the leader that first appended the record that Next returned last.
func (r *Reader) Generation() uint64 { return r.metas.Generation() }

// AppendTime is when the record that Next returned last was first appended, in Unix microseconds.
func (r *Reader) AppendTime() int64 { return r.metas.AppendTime() }

// HeaderSection is the header section of the record that Next returned last, as ParseHeaders reads it; empty when the
// record has no headers. It aliases what the record's Value does.
func (r *Reader) HeaderSection() []byte { return r.section }

// Next fills rec with the next record. It returns false at the end.
func (r *Reader) Next(rec *Record) (bool, error) {
	var m Meta
	ok, err := r.step(&m)
	if !ok || err != nil {
		return false, err
	}
	return r.read(&m, rec)
}

// Find fills rec with the next record that has this offset, and passes over those before it without looking into them. It
// returns false at the end.
func (r *Reader) Find(offset uint64, rec *Record) (bool, error) {
	var m Meta
	for {
		ok, err := r.step(&m)
		if !ok || err != nil {
			return false, err
		}
		if r.metas.Offset() == offset {
			return r.read(&m, rec)
		}
		r.body.bytes(m.HeadersSize + m.ValueSize)
	}
}

// step reads the next meta.
func (r *Reader) step(m *Meta) (bool, error) {
	ok, err := r.metas.Next(m)
	if err != nil {
		return false, err
	}
	if !r.opened {
		if err := r.open(); err != nil {
			return false, err
		}
	}
	if !ok {
		r.body.end()
		return false, r.bodyFault()
	}
	return true, nil
}

// read reads the record of the meta that step read.
func (r *Reader) read(m *Meta, rec *Record) (bool, error) {
	c := &r.body
	*rec = Record{Key: m.Key, Timestamp: m.Timestamp, Delay: m.Delay, TTL: m.TTL, Priority: m.Priority}
	r.section = nil
	if m.HeadersSize > 0 {
		r.section = c.bytes(m.HeadersSize)
		rec.Headers = r.readHeaders(r.section)
	}
	if !m.Null {
		rec.Value = c.bytes(m.ValueSize)
	}
	return c.err == nil, r.bodyFault()
}

func (r *Reader) open() error {
	r.opened = true
	body, err := r.b.plainBody()
	if err != nil {
		r.body.fail(ErrCompression)
		return err
	}
	r.body.b = body
	return nil
}

// plainBody returns the body as it is without compression, in fresh memory if it has to be unpacked.
func (b Batch) plainBody() ([]byte, error) {
	switch {
	case len(b) == 0: // a reader at rest
		return nil, nil
	case !b.Compressed():
		return b.body(), nil
	}
	plain, err := compress.Unzstd(b.body(), b.PlainSize())
	if err != nil {
		return nil, fault("decompress body", HeaderSize+b.metaSize(), ErrCompression)
	}
	return plain, nil
}

func (r *Reader) bodyFault() error {
	if r.body.err == nil {
		return nil
	}
	return fault("read record body", r.body.at, r.body.err)
}

func (r *Reader) readHeaders(p []byte) []Header {
	start := r.body.pos - len(p)
	c := cursor{b: p}
	r.headers = c.headers(r.headers)
	if c.err != nil && r.body.err == nil {
		r.body.err, r.body.at = c.err, start+c.at
	}
	return r.headers
}
