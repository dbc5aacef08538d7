// SPDX-License-Identifier: Apache-2.0

package storage

import "margay.dev/storage/segment"

const (
	// zeroRuns is for how many appends like the last one zeros are written ahead: what they save on each flush has to pay
	// for writing them, and for the one flush that writes their blocks into the file's metadata.
	zeroRuns = 16
	minZero  = 16 << 10
	maxZero  = 1 << 20
	// maxZeroRun is the largest append that zeros are written ahead for. Behind a larger one the disk is busy with bytes,
	// and the zeros would double them.
	maxZeroRun = maxZero / zeroRuns
)

var zeros [64 << 10]byte //nolint:gochecknoglobals // never written to

// zeroAhead writes zeros behind the end of the newest segment when its last append, of run bytes, has come to the end of
// those before. A flush of bytes that replace others has no metadata to write, which takes it half the time of one that
// makes a file longer or fills blocks that were only reserved.
//
// It changes nothing about what recovery can tell. Zeros from a batch's place to the end of the file say that it never
// came to be flushed, as the end of the file itself said before: every batch begins with bytes that are not zero, so one
// that was flushed shows there, and so does each behind it.
func (l *Disk) zeroAhead(s *seg, end, run int64) {
	if !l.o.ZeroAhead || end < s.zeroed || run > maxZeroRun {
		return
	}
	to := min(end+min(max(zeroRuns*run, minZero), maxZero), l.o.SegmentBytes)
	if !l.reserve(s, to) {
		return // the room that is left is for records
	}
	for pos := max(end, s.zeroed); pos < to; {
		n := min(to-pos, int64(len(zeros)))
		// The batches are in the file already: zeros that cannot be written are not missed.
		s.zeroed = pos + n
		if _, err := writeAt(s.h.file, zeros[:n], pos); err != nil {
			l.log.Debug("no zeros are written ahead", "file", segment.Name(s.Base), "error", err)
			return
		}
		pos += n
	}
}
