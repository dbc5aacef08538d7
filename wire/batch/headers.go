// SPDX-License-Identifier: Apache-2.0

package batch

// AppendHeaders appends the header section of a record as a batch has it; nothing when there are no headers.
func AppendHeaders(dst []byte, headers []Header) []byte {
	if len(headers) == 0 {
		return dst
	}
	return appendHeaders(dst, headers)
}

// ParseHeaders reads a header section, which is empty when there are none. Values alias it; into is reused.
func ParseHeaders(section []byte, into []Header) ([]Header, error) {
	if len(section) == 0 {
		return into[:0], nil
	}
	c := cursor{b: section}
	out := c.headers(into)
	if c.err != nil {
		return nil, fault("read header section", c.at, c.err)
	}
	return out, nil
}

func headersSize(headers []Header) int {
	if len(headers) == 0 {
		return 0
	}
	n := uvarintSize(uint64(len(headers)))
	for i := range headers {
		k, v := len(headers[i].Key), len(headers[i].Value)
		n += uvarintSize(uint64(k)) + k + uvarintSize(uint64(v)) + v
	}
	return n
}

func appendHeaders(dst []byte, headers []Header) []byte {
	dst = appendUvarint(dst, uint64(len(headers)))
	for i := range headers {
		dst = appendString(dst, headers[i].Key)
		dst = appendUvarint(dst, uint64(len(headers[i].Value)))
		dst = append(dst, headers[i].Value...)
	}
	return dst
}

// headers reads a section that is all of c.
func (c *cursor) headers(into []Header) []Header {
	n := headerCount(c)
	// A header takes at least two bytes, so growth is bounded by bytes that are there.
	old := into[:cap(into)]
	out := into[:0]
	for i := range n {
		name := c.bytes(c.length())
		value := c.bytes(c.length())
		if c.err != nil {
			break
		}
		var key string
		// Records of one batch mostly carry the same header names: reusing the string saves an allocation each.
		if i < len(old) && old[i].Key == string(name) {
			key = old[i].Key
		} else {
			key = string(name)
		}
		out = append(out, Header{Key: key, Value: value})
	}
	c.end()
	return out
}

// headerCount reads how many headers follow: at least one, for a record without any has no header section.
func headerCount(c *cursor) int {
	n := c.uvarint()
	if n == 0 || n > uint64(c.left()/2) {
		c.fail(ErrCount)
		return 0
	}
	return int(n)
}
