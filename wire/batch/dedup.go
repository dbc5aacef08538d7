// SPDX-License-Identifier: Apache-2.0

package batch

// DedupHeader is the name that makes the first header of a record its dedup id: of several records with one id, a
// shard stores the first and answers the others with its offset. Anywhere else it is a header like any other.
const DedupHeader = "dedup-id"

// DedupID returns the dedup id of the batch's one record, or nil when it has none. It aliases the batch.
func (b Batch) DedupID() []byte {
	if b.Attributes()&AttrDedup == 0 {
		return nil
	}
	var (
		metas Metas
		m     Meta
	)
	metas.reset(b)
	metas.step(&m)
	c := cursor{b: b.body(), err: metas.c.err}
	c.b = c.bytes(m.HeadersSize)
	c.pos = 0
	headerCount(&c)
	name := c.bytes(c.length())
	id := c.bytes(c.length())
	// A stored batch is not walked when it is read, and its leader may have been of another release: the id is looked
	// at, not trusted.
	if c.err != nil || string(name) != DedupHeader || !validDedupID(len(id)) {
		return nil
	}
	return id
}

func hasDedupID(headers []Header) bool { return len(headers) > 0 && headers[0].Key == DedupHeader }

func validDedupID(size int) bool { return size >= 1 && size <= MaxDedupID }
