// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"strconv"
	"strings"
)

// Suffixes of the two kinds of files.
const (
	Suffix      = ".seg"
	IndexSuffix = ".idx"
)

const digits = 20 // of the largest sequence, so that names sort as sequences do

// Name is the file name of the segment whose first batch has this sequence.
func Name(base uint64) string { return fmt.Sprintf("%0*d%s", digits, base, Suffix) }

// IndexName is the file name of that segment's index.
func IndexName(base uint64) string { return fmt.Sprintf("%0*d%s", digits, base, IndexSuffix) }

// ParseName reads the names that Name and IndexName write; of any other, ok is false.
func ParseName(name string) (base uint64, suffix string, ok bool) {
	if len(name) != digits+len(Suffix) {
		return 0, "", false
	}
	suffix = name[digits:]
	if suffix != Suffix && suffix != IndexSuffix || strings.TrimLeft(name[:digits], "0123456789") != "" {
		return 0, "", false
	}
	base, err := strconv.ParseUint(name[:digits], 10, 64)
	return base, suffix, err == nil
}
