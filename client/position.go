// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"margay.dev/wire/batch"
)

// A position token is positionPrefix and base64url of: log id (16), uvarint n, n times (uvarint shard, uvarint next
// offset, uvarint generation) with rising shards, CRC-32C of all that (4, little endian). The prefix carries the version.
const (
	positionPrefix = "mp1_"
	// maxPositionShards bounds what a token may make the client allocate.
	maxPositionShards = 1 << 16
)

// position is where a subscription stands.
type position struct {
	log    batch.LogID
	shards []shardPosition
}

// shardPosition is the offset of the next record of a shard, and the generation of the one before it.
type shardPosition struct {
	shard            uint32
	next, generation uint64
}

func (p *position) find(shard uint32) (shardPosition, bool) {
	for _, s := range p.shards {
		if s.shard == shard {
			return s, true
		}
	}
	return shardPosition{}, false
}

func (p *position) String() string {
	b := make([]byte, 0, 32+16*len(p.shards))
	b = append(b, p.log[:]...)
	b = binary.AppendUvarint(b, uint64(len(p.shards)))
	for _, s := range p.shards {
		b = binary.AppendUvarint(b, uint64(s.shard))
		b = binary.AppendUvarint(b, s.next)
		b = binary.AppendUvarint(b, s.generation)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return positionPrefix + base64.RawURLEncoding.EncodeToString(b)
}

func parsePosition(token string) (*position, error) {
	fail := func(why string) (*position, error) {
		return nil, fmt.Errorf("position token %.40q: %s", token, why)
	}
	rest, ok := strings.CutPrefix(token, positionPrefix)
	if !ok {
		return fail("not a token of this version")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) < len(batch.LogID{})+1+4 || strings.ContainsAny(rest, "\r\n") { // the decoder passes over line breaks
		return fail("damaged")
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return fail("damaged")
	}
	p := &position{}
	body = body[copy(p.log[:], body):]
	read := func() uint64 {
		v, n := binary.Uvarint(body)
		if n <= 0 {
			ok = false
			return 0
		}
		body = body[n:]
		return v
	}
	n := read()
	if n == 0 || n > maxPositionShards || n > uint64(len(body)) {
		return fail("names no shards, or too many")
	}
	for last := int64(-1); n > 0 && ok; n-- {
		shard, next, generation := read(), read(), read()
		if int64(shard) <= last || shard >= 1<<32 {
			return fail("shards are out of order")
		}
		last = int64(shard)
		p.shards = append(p.shards, shardPosition{uint32(shard), next, generation})
	}
	if !ok || len(body) > 0 {
		return fail("damaged")
	}
	return p, nil
}
