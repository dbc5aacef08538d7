// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"
	"fmt"
	"time"

	"margay.dev/client"
)

func durable(ctx context.Context, c *client.Client, handle func(client.Record) error) error {
	s, err := c.Subscribe(ctx, "orders", client.Durable("billing"), client.FromEarliest())
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.Resumed() {
		fmt.Println("billing is new: it begins at the earliest record")
	}
	for rec, err := range s.Records(ctx) {
		if err != nil {
			return err
		}
		if err := handle(rec); err != nil {
			return err
		}
	}
	return nil
}

// byHand reads from a subscription with ManualCommit.
func byHand(ctx context.Context, s *client.Subscription, handleAll func([]client.Record) error) error {
	var batch []client.Record
	for rec, err := range s.Records(ctx) {
		if err != nil {
			return err
		}
		if batch = append(batch, rec); len(batch) < 100 {
			continue
		}
		if err := handleAll(batch); err != nil {
			return err
		}
		if err := s.Commit(ctx); err != nil {
			return err
		}
		batch = batch[:0]
	}
	return nil
}

func forget(ctx context.Context, c *client.Client) error {
	cursors, err := c.Cursors(ctx, "orders")
	if err != nil {
		return err
	}
	for _, x := range cursors {
		fmt.Println(x.Name, x.Shard, x.Offset, x.Updated.Format(time.RFC3339), x.Held)
	}
	return c.DeleteCursor(ctx, "orders", "billing")
}

func presence(ctx context.Context, c *client.Client) (*client.LastRecord, error) {
	present := client.Record{Key: []byte("device/7/presence"), Value: []byte("here")}
	gone := client.Record{Key: present.Key, Value: []byte("gone")}
	p := c.Publisher("devices")
	last, err := c.LastRecord(ctx, "devices", gone, time.Minute, client.OnReturn(func() {
		p.PublishAsync(ctx, present) // "gone" may have been published meanwhile
	}))
	if err != nil {
		return nil, err
	}
	if _, err := p.Publish(ctx, present); err != nil {
		return nil, err
	}
	return last, nil
}
