// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strconv"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// Add adds delta, which may be negative, to the number at a key and returns the sum and its version. A key that is not there
// counts from 0. The shard's leader adds in its order of writes, so that no increment is lost, and one that is sent again
// counts once. A value that is no decimal number, or a sum that does not fit 64 bits, is ErrNotANumber, and nothing changes.
//
//	n, _, err := calls.Add(ctx, fmt.Sprintf("%s/%d", user, time.Now().Unix()/60), 1, client.TTL(2*time.Minute))
//	if n > 100 { ... }
//
// With TTL the number ends so long after this increment, and so it does with the cache's own time to live, where it has one.
// Otherwise, and with NoTTL, it keeps the end that it has.
func (k *Cache) Add(ctx context.Context, key string, delta int64, opts ...AddOption) (sum int64, version uint64, err error) {
	var o putOptions
	for _, opt := range opts {
		opt.applyAdd(&o)
	}
	o.derive = wire.OpAdd
	ack, sum, err := k.derive(ctx, &Record{Key: []byte(key), Value: strconv.AppendInt(nil, delta, 10), options: o.recordOptions}, &o)
	if err != nil {
		return 0, 0, err
	}
	return sum, ack.Version(), nil
}

// Touch gives the value of a key a new time to live, from now on, and returns its new version. A key that is not there is
// ErrNotFound.
func (k *Cache) Touch(ctx context.Context, key string, ttl time.Duration) (version uint64, err error) {
	return k.touch(ctx, key, putOptions{lives: livesGiven, ttl: ttl})
}

// Persist lets the value of a key live for ever; otherwise it is Touch.
func (k *Cache) Persist(ctx context.Context, key string) (version uint64, err error) {
	return k.touch(ctx, key, putOptions{lives: livesForEver})
}

func (k *Cache) touch(ctx context.Context, key string, o putOptions) (uint64, error) {
	o.derive = wire.OpTouch
	ack, _, err := k.derive(ctx, &Record{Key: []byte(key), options: o.recordOptions}, &o)
	if e := code.From(err); e != nil && e.Code == code.TooLarge {
		// Nobody here knows how large the values are. It may not have fitted beside others that are touched just now.
		o.apart = true
		ack, _, err = k.derive(ctx, &Record{Key: []byte(key), options: o.recordOptions}, &o)
	}
	if err != nil {
		return 0, err
	}
	return ack.Version(), nil
}

// derive publishes a record that the leader makes, and returns what it came to.
func (k *Cache) derive(ctx context.Context, rec *Record, o *putOptions) (Ack, int64, error) {
	if _, err := k.resolve(ctx); err != nil { // an old broker would store what was meant as an operation
		return Ack{}, 0, err
	}
	f := k.write(ctx, rec, o)
	ack, err := f.Wait(ctx)
	if err != nil || o.derive != wire.OpAdd {
		return ack, 0, err
	}
	sum, ok := f.f.sum(f.index)
	if !ok {
		return ack, 0, code.New(code.OutcomeUnknown, "add to key %.100q: it is counted, but the broker did not say the sum", rec.Key)
	}
	return ack, sum, nil
}
