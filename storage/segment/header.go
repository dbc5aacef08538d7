// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"

	"margay.dev/wire/batch"
)

// HeaderSize is the size of the header of a segment file; the first batch begins behind it.
const HeaderSize = 48

// Version is the version of segment and index files that this release writes, and the only one it reads.
const Version = 1

const segmentMagic = "MARGAYSG"

// What can be wrong with the header of a segment or an index file.
var (
	// ErrShort means that the file ends before its header does.
	ErrShort = errors.New("file ends before its header does")
	// ErrMagic means that the file is not what its name says.
	ErrMagic = errors.New("magic does not match")
	// ErrChecksum means that the bytes are not those that were written.
	ErrChecksum = errors.New("checksum does not match")
	// ErrNewer means that a newer release wrote this, and that this one must neither read nor cut it.
	ErrNewer = errors.New("written by a newer release")
	// ErrIndex means that an index contradicts itself. It is derived, so it is rebuilt.
	ErrIndex = errors.New("index contradicts itself")
)

// Header names the shard that a segment file belongs to and the sequence of its first batch.
type Header struct {
	ID    batch.LogID
	Shard uint32
	Base  uint64
}

// Append appends the header's bytes.
func (h Header) Append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, segmentMagic...)
	dst = le.AppendUint16(dst, Version)
	dst = le.AppendUint16(dst, 0) // flags
	dst = le.AppendUint32(dst, h.Shard)
	dst = append(dst, h.ID[:]...)
	dst = le.AppendUint64(dst, h.Base)
	dst = le.AppendUint32(dst, 0) // reserved
	return le.AppendUint32(dst, checksum(dst[from:]))
}

// ParseHeader reads a segment's header. A header of which the checksum is good but the version or a flag is not known is
// ErrNewer; every other fault is damage.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("parse segment header: %d bytes: %w", len(b), ErrShort)
	}
	if string(b[:8]) != segmentMagic {
		return Header{}, fmt.Errorf("parse segment header: %w", ErrMagic)
	}
	if checksum(b[:44]) != le.Uint32(b[44:]) {
		return Header{}, fmt.Errorf("parse segment header: %w", ErrChecksum)
	}
	if v, flags := le.Uint16(b[8:]), le.Uint16(b[10:]); v != Version || flags != 0 || le.Uint32(b[40:]) != 0 {
		return Header{}, fmt.Errorf("parse segment header: version %d, flags %#x: %w", v, flags, ErrNewer)
	}
	h := Header{Shard: le.Uint32(b[12:]), Base: le.Uint64(b[32:])}
	copy(h.ID[:], b[16:32])
	return h, nil
}
