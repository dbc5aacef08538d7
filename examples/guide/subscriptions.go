// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"
	"time"

	"margay.dev/client"
)

func withTheirPlace(ctx context.Context, c *client.Client, store func(rec client.Record, place string) error) error {
	s, err := c.Subscribe(ctx, "orders", client.FromEarliest())
	if err != nil {
		return err
	}
	defer s.Close()
	for rec, err := range s.Records(ctx) {
		if err != nil {
			return err
		}
		if err := store(rec, s.Position()); err != nil { // both in one transaction, and nothing is done twice
			return err
		}
	}
	return nil
}

func goOn(ctx context.Context, c *client.Client, token string) (*client.Subscription, error) {
	s, err := c.Subscribe(ctx, "orders", client.FromPosition(token)) // later, perhaps elsewhere
	return s, err
}

func countMissing(ctx context.Context, s *client.Subscription) (missed uint64, err error) {
	for rec, err := range s.Records(ctx) {
		if err != nil {
			return 0, err
		}
		if gap := rec.Gap; gap != nil {
			missed += gap.To - gap.From // for a filtered subscription: the range in which the lost records lay
		}
	}
	for _, gap := range s.PendingGaps() { // those that no record came behind
		missed += gap.To - gap.From
	}
	return missed, nil
}

func forASecond(ctx context.Context, s *client.Subscription) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for rec, err := range s.Records(ctx) {
		if err != nil && ctx.Err() != nil {
			break // time is up; the next iteration begins with what this one has not given
		}
		if err != nil {
			return n, err
		}
		n += len(rec.Value)
	}
	return n, nil
}
