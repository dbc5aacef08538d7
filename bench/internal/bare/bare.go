// SPDX-License-Identifier: Apache-2.0

// Package bare is a durable publish with everything left out that makes a product: batches come over one stream for each
// client, their checksum is verified, they are appended to one journal, one flush serves all that queued, and acknowledgements
// go back. It knows no names, offsets, retries, permissions, index or subscribers, cannot read what it wrote, and is no good
// for anything but marking the ceiling.
package bare

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A batch is a head (size of the body u32, CRC-32C of the body u32, id u64), and the body: records, each a length (u32) and
// its bytes. The answer is the id (u64).
const (
	headSize = 16
	ackSize  = 8
	maxBody  = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errChecksum = errors.New("wrong checksum")
	errSize     = errors.New("wrong size")
)

// seal writes the head of the batch that begins with room for it.
func seal(b []byte, id uint64) {
	body := b[headSize:]
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(body, castagnoli))
	binary.LittleEndian.PutUint64(b[8:], id)
}

func appendRecord(b, msg []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(msg))), msg...)
}

// readBatch reads a batch into a buffer of its own and verifies it.
func readBatch(r *bufio.Reader) (batch []byte, id uint64, err error) {
	head, err := r.Peek(headSize)
	if err != nil {
		return nil, 0, err
	}
	size := binary.LittleEndian.Uint32(head)
	if size == 0 || size > maxBody {
		return nil, 0, fmt.Errorf("batch of %d bytes: %w", size, errSize)
	}
	batch = make([]byte, headSize+size)
	if _, err := io.ReadFull(r, batch); err != nil {
		return nil, 0, err
	}
	if crc32.Checksum(batch[headSize:], castagnoli) != binary.LittleEndian.Uint32(batch[4:]) {
		return nil, 0, errChecksum
	}
	for p := batch[headSize:]; len(p) > 0; { // a broker looks at every record's length, so this does too
		if len(p) < 4 || uint32(len(p)-4) < binary.LittleEndian.Uint32(p) {
			return nil, 0, errSize
		}
		p = p[4+binary.LittleEndian.Uint32(p):]
	}
	return batch, binary.LittleEndian.Uint64(batch[8:]), nil
}
