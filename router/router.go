// SPDX-License-Identifier: Apache-2.0

// Package router answers who serves a shard from an immutable snapshot that is swapped whole; it does no
// I/O, takes no lock, and refuses what it does not know rather than guess.
package router

import (
	"encoding/hex"
	"sync/atomic"
)

// LogID is the immutable random id of a log, never reused.
type LogID [16]byte

// String is the id in hexadecimal, as directories and messages spell it.
func (id LogID) String() string { return hex.EncodeToString(id[:]) }

// Outcome is what a broker does with a request for a shard. There is no fourth: a broker that treats an
// unknown route as its own is a broker writing a shard that it does not own.
type Outcome uint8

// The outcomes. The zero value refuses.
const (
	Refused Outcome = iota
	Local           // this broker leads the shard and has opened it
	Forward         // Route.Address leads it
)

// Reason says which kind of nobody serves a refused shard.
type Reason uint8

// The reasons of a refused route.
const (
	NoReason    Reason = iota
	UnknownLog         // no such log in this snapshot
	NoSuchShard        // the log has fewer shards
	Opening            // this broker leads it and has not finished opening it
	NoLeader           // nobody leads it now
	Exhausted          // this broker leads it and has no descriptor left for its log
	Quarantined        // its data cannot be served: an operator must decide. Route.Fault says why
)

// Route is the answer to one resolve.
type Route struct {
	Outcome    Outcome
	Reason     Reason
	Generation uint64
	Address    string // of the leader, when known
	Fault      string // why the shard is quarantined or has no room
	Shard      any    // what Set gave for an opened shard: the broker's handle
}

// Shard is one shard of a log in a snapshot.
type Shard struct {
	Leader     string // node id; empty for nobody
	Address    string
	Generation uint64
	Handle     any    // not nil when this broker leads it and has finished opening it
	Fault      string // why its data cannot be served; empty when it can
	NoRoom     string // why its log is not opened although it is sound
}

// Log is one log of a snapshot.
type Log struct {
	ID     LogID
	Name   string // tenant/namespace/name
	Info   any    // the catalog's description, opaque here
	Shards []Shard
}

// Map is an immutable routing snapshot.
type Map struct {
	version uint64
	byID    map[LogID]*entry
	byName  map[string]*Log
}

// entry is a log with the answer for each of its shards, worked out when the snapshot is made and not per request.
type entry struct {
	log    *Log
	routes []Route
}

// New builds a snapshot for node; the caller gives up logs.
func New(version uint64, node string, logs []*Log) *Map {
	m := &Map{version: version, byID: make(map[LogID]*entry, len(logs)), byName: make(map[string]*Log, len(logs))}
	for _, l := range logs {
		e := &entry{log: l, routes: make([]Route, len(l.Shards))}
		for i := range l.Shards {
			e.routes[i] = l.Shards[i].route(node)
		}
		m.byID[l.ID] = e
		m.byName[l.Name] = l
	}
	return m
}

// route is where requests for the shard go from node.
func (s *Shard) route(node string) Route {
	switch {
	case s.Fault != "":
		return Route{Reason: Quarantined, Generation: s.Generation, Fault: s.Fault}
	case s.NoRoom != "":
		return Route{Reason: Exhausted, Generation: s.Generation, Fault: s.NoRoom}
	case s.Leader == "":
		return Route{Reason: NoLeader, Generation: s.Generation}
	case s.Leader != node:
		return Route{Outcome: Forward, Generation: s.Generation, Address: s.Address}
	case s.Handle == nil:
		return Route{Reason: Opening, Generation: s.Generation, Address: s.Address}
	}
	return Route{Outcome: Local, Generation: s.Generation, Address: s.Address, Shard: s.Handle}
}

// Version is the catalog version that the snapshot was made from.
func (m *Map) Version() uint64 { return m.version }

// ByName finds a log by its full address.
func (m *Map) ByName(name string) (*Log, bool) {
	l, ok := m.byName[name]
	return l, ok
}

// ByID finds a log by its id.
func (m *Map) ByID(id LogID) (*Log, bool) {
	e := m.byID[id]
	if e == nil {
		return nil, false
	}
	return e.log, true
}

// Len is the number of logs.
func (m *Map) Len() int { return len(m.byID) }

// Resolve answers who serves the shard.
func (m *Map) Resolve(id LogID, shard uint32) Route {
	e := m.byID[id]
	if e == nil {
		return Route{Reason: UnknownLog}
	}
	if uint64(shard) >= uint64(len(e.routes)) {
		return Route{Reason: NoSuchShard}
	}
	return e.routes[shard]
}

// Table holds the current snapshot. Readers take one atomic load; the one writer swaps the map whole.
type Table struct{ p atomic.Pointer[Map] }

// NewTable starts with an empty snapshot, which refuses everything.
func NewTable(node string) *Table {
	t := &Table{}
	t.p.Store(New(0, node, nil))
	return t
}

// Load returns the current snapshot.
func (t *Table) Load() *Map { return t.p.Load() }

// Swap makes m the current snapshot.
func (t *Table) Swap(m *Map) { t.p.Store(m) }
