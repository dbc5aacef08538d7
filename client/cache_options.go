// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// PutOption is for Cache.Put and PutAsync.
type PutOption interface{ applyPut(o *putOptions) }

// DeleteOption is for Cache.Delete.
type DeleteOption interface{ applyDelete(o *recordOptions) }

// AddOption is for Cache.Add.
type AddOption interface{ applyAdd(o *putOptions) }

// GetOption is for Cache.Get.
type GetOption interface{ applyGet(o *getOptions) }

// ListOption is for Cache.List.
type ListOption interface{ applyList(o *listOptions) }

// Condition is an option of every write that can be conditional: IfVersion and IfAbsent.
type Condition interface {
	RecordOption
	PutOption
	DeleteOption
}

// LifeOption says how long what is written lives: TTL and NoTTL.
type LifeOption interface {
	PutOption
	AddOption
	RecordOption
}

// ReadOption is for every read that can be stale.
type ReadOption interface {
	GetOption
	ListOption
}

// Selector says which keys are meant: Key, Prefix or Pattern. Without one, all are.
type Selector interface {
	ListOption
	WatchOption
	FindOption
	filter() wire.Filter
}

// lives says where a record's time to live comes from.
type lives uint8

const (
	livesDefault lives = iota // the cache's setting
	livesGiven
	livesForEver
)

type putOptions struct {
	recordOptions
	lives   lives
	ttl     time.Duration
	headers []Header
}

type getOptions struct {
	stale   bool
	atLeast uint64
}

type listOptions struct {
	selection
	stale, keysOnly, after bool
	afterKey               string
}

// selection is at most one selector.
type selection struct {
	filter wire.Filter
	count  int
}

func (s *selection) set(f wire.Filter) { s.filter, s.count = f, s.count+1 }

func (s *selection) check(what string) *Error {
	if s.count > 1 {
		return code.New(code.BadRequest, "%s: %d of Key, Prefix and Pattern: give one", what, s.count)
	}
	if err := s.filter.ValidateKeys(); err != nil {
		return code.New(code.BadRequest, "%s: %w", what, err)
	}
	if s.filter.Kind == wire.FilterExact && s.filter.Value == "" {
		return code.New(code.BadRequest, "%s: the key is empty", what)
	}
	return nil
}

type condition recordOption

func (f condition) applyRecord(o *recordOptions) { f(o) }
func (f condition) applyPut(o *putOptions)       { f(&o.recordOptions) }
func (f condition) applyDelete(o *recordOptions) { f(o) }

type lifeOption struct {
	lives lives
	ttl   time.Duration
}

func (f lifeOption) applyPut(o *putOptions) { o.lives, o.ttl = f.lives, f.ttl }
func (f lifeOption) applyAdd(o *putOptions) { o.lives, o.ttl = f.lives, f.ttl }

func (f lifeOption) applyRecord(o *recordOptions) {
	o.givenTTL = &f.ttl
	if f.lives == livesGiven {
		o.problem = checkTTL(f.ttl)
	}
}

// TTL ends the life of what is written so long after it was stored, by the broker's clock. From then on a cache's key is absent,
// and who watches it is told Expired; a queue's message is handed out no more. Parts of a microsecond are rounded up. 0 and less
// are refused.
func TTL(d time.Duration) LifeOption { return lifeOption{livesGiven, d} }

// NoTTL lets what is written live for ever, whatever the cache's setting says.
func NoTTL() LifeOption { return lifeOption{lives: livesForEver} }

type putOption func(o *putOptions)

func (f putOption) applyPut(o *putOptions) { f(o) }

// Headers stores named values beside the value.
func Headers(headers ...Header) PutOption {
	return putOption(func(o *putOptions) { o.headers = append(o.headers, headers...) })
}

type readOption struct{}

func (readOption) applyGet(o *getOptions)   { o.stale = true }
func (readOption) applyList(o *listOptions) { o.stale = true }

// Stale lets any replica answer, also one that may not have the newest writes. The entry says how new it is.
func Stale() ReadOption { return readOption{} }

type getOption func(o *getOptions)

func (f getOption) applyGet(o *getOptions) { f(o) }

// AtLeast waits until the replica that answers has this version, as Put returned it, of a key of the same shard: with Stale
// it reads what one has written.
func AtLeast(version uint64) GetOption { return getOption(func(o *getOptions) { o.atLeast = version }) }

type listOption func(o *listOptions)

func (f listOption) applyList(o *listOptions) { f(o) }

// KeysOnly leaves the values out.
func KeysOnly() ListOption { return listOption(func(o *listOptions) { o.keysOnly = true }) }

// After begins behind a key, which need not be there: for who goes on with a list later.
func After(key string) ListOption {
	return listOption(func(o *listOptions) { o.after, o.afterKey = true, key })
}

type selector wire.Filter

func (s selector) filter() wire.Filter      { return wire.Filter(s) }
func (s selector) applyList(o *listOptions) { o.set(wire.Filter(s)) }

func (s selector) applyWatch(w *watchConfig) { w.set(wire.Filter(s)) }

// Key selects one key.
func Key(key string) Selector { return selector{Kind: wire.FilterExact, Value: key} }

// Prefix selects the keys that begin with prefix, byte for byte.
func Prefix(prefix string) Selector { return selector{Kind: wire.FilterPrefix, Value: prefix} }

// Pattern selects the keys that match a topic pattern: "/" divides levels, "+" stands for one level, a last "#" for all that
// follow or none. See Keys.
func Pattern(pattern string) Selector { return selector{Kind: wire.FilterPattern, Value: pattern} }
