// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// LogID names a log for ever: random, never reused, so that a log created again under an old name shares
// nothing with its predecessor.
type LogID [16]byte

// NewLogID returns a random id.
func NewLogID() LogID {
	var id LogID
	_, _ = rand.Read(id[:]) // never fails: the runtime ends the process when the system has no randomness
	return id
}

// ParseLogID reads the 32 hexadecimal digits that String writes.
func ParseLogID(s string) (LogID, error) {
	var id LogID
	if len(s) != hex.EncodedLen(len(id)) {
		return LogID{}, fmt.Errorf("parse log id %q: want %d hexadecimal digits", s, hex.EncodedLen(len(id)))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return LogID{}, fmt.Errorf("parse log id %q: %w", s, err)
	}
	return id, nil
}

func (id LogID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id LogID) IsZero() bool { return id == LogID{} }

// MarshalText writes the id as String does, in JSON and as a map key.
func (id LogID) MarshalText() ([]byte, error) {
	return hex.AppendEncode(make([]byte, 0, hex.EncodedLen(len(id))), id[:]), nil
}

// UnmarshalText reads what MarshalText writes.
func (id *LogID) UnmarshalText(text []byte) error {
	parsed, err := ParseLogID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
