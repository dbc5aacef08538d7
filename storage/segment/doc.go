// SPDX-License-Identifier: Apache-2.0

// Package segment is the byte format of segment and index files: it encodes, parses and scans them through an io.ReaderAt,
// touches no file by name, and refuses to decide what damage means (package recovery does).
package segment

import (
	"encoding/binary"
	"hash/crc32"
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }
