// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// Ack says what an acknowledgement of a publish promises.
type Ack uint8

// The acks. AckDefault leaves it to the log.
const (
	AckDefault Ack = 0
	AckNone    Ack = 1
	AckLeader  Ack = 2
	AckQuorum  Ack = 3
)

// Fsync says when a log flushes.
type Fsync uint8

// The fsync policies. FsyncUnknown is for a broker that does not say.
const (
	FsyncUnknown  Fsync = 0
	FsyncAlways   Fsync = 1
	FsyncInterval Fsync = 2
	FsyncNever    Fsync = 3
)

// Storage says where a log lives.
type Storage uint8

// The kinds of storage. StorageUnknown is for a broker that does not say.
const (
	StorageUnknown Storage = 0
	StorageDisk    Storage = 1
	StorageMemory  Storage = 2
)

// Keep says which records of a log stay.
type Keep uint8

// What is kept. KeepUnknown is for a broker that does not say.
const (
	KeepUnknown Keep = 0
	KeepAll     Keep = 1 // every record, for as long as retention says
	KeepNewest  Keep = 2 // the newest record of each key
	// KeepUnsettled keeps a record until every group, and at least one, has settled it. Only a client that named FeatureQueues is
	// told so; others are told KeepAll.
	KeepUnsettled Keep = 3
)

// Route says where a shard is led. Address is empty while nobody leads it.
type Route struct {
	Address    string
	Generation uint64
}

// LogInfo answers Lookup.
type LogInfo struct {
	Log         batch.LogID
	Name        string
	Ack, MinAck Ack
	Fsync       Fsync
	Storage     Storage
	// MapVersion is the version of the routing snapshot that this was read from: of two answers the
	// higher one counts.
	MapVersion uint64
	// Shards has one route for each shard, by its number.
	Shards []Route
	// Keep and DefaultTTL (microseconds, 0 for none) stand behind the list when Keep is known. Flag FlagKeys: only a client
	// that named FeatureCaches can read it.
	Keep       Keep
	DefaultTTL uint64
}

const routeMin = 1 + 8

// Type returns TypeLogInfo.
func (*LogInfo) Type() Type { return TypeLogInfo }

// Flags says whether Keep is there.
func (f *LogInfo) Flags() uint8 {
	if f.Keep != KeepUnknown {
		return FlagKeys
	}
	return 0
}

// Size returns the size of the body.
func (f *LogInfo) Size() int {
	n := 16 + stringSize(f.Name) + 4 + 4 + 8
	for i := range f.Shards {
		n += stringSize(f.Shards[i].Address) + 8
	}
	if f.Keep != KeepUnknown {
		n += 1 + 8
	}
	return n
}

// Append appends the body.
func (f *LogInfo) Append(dst []byte) []byte {
	dst = append(dst, f.Log[:]...)
	dst = appendString(dst, f.Name)
	dst = append(dst, byte(f.Ack), byte(f.MinAck), byte(f.Fsync), byte(f.Storage))
	dst = binary.LittleEndian.AppendUint64(dst, f.MapVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Shards)))
	for i := range f.Shards {
		dst = appendString(dst, f.Shards[i].Address)
		dst = binary.LittleEndian.AppendUint64(dst, f.Shards[i].Generation)
	}
	if f.Keep != KeepUnknown {
		dst = binary.LittleEndian.AppendUint64(append(dst, byte(f.Keep)), f.DefaultTTL)
	}
	return dst
}

// Parse reads a body without flags.
func (f *LogInfo) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body.
func (f *LogInfo) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypeLogInfo}
	c.flags(flags)
	f.Log = c.logID()
	f.Name = c.string()
	f.Ack = Ack(c.enum(uint8(AckQuorum)))
	f.MinAck = Ack(c.enum(uint8(AckQuorum)))
	f.Fsync = Fsync(c.enum(uint8(FsyncNever)))
	f.Storage = Storage(c.enum(uint8(StorageMemory)))
	f.MapVersion = c.u64()
	f.Shards = f.Shards[:0]
	for n := c.count(routeMin); n > 0 && c.err == nil; n-- {
		f.Shards = append(f.Shards, Route{Address: c.string(), Generation: c.u64()})
	}
	f.Keep, f.DefaultTTL = KeepUnknown, 0
	if flags&FlagKeys != 0 {
		if f.Keep = Keep(c.enum(uint8(KeepUnsettled))); f.Keep == KeepUnknown {
			c.fail(ErrValue)
		}
		f.DefaultTTL = c.u64()
	}
	return c.done()
}
