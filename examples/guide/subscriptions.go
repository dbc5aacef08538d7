// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"

	"margay.dev/client"
)

func resume(ctx context.Context, c *client.Client, token string, handle func(client.Record) error, save func(string) error) error {
	s, err := c.Subscribe(ctx, "orders", client.FromEarliest())
	if err != nil {
		return err
	}
	defer s.Close()
	for rec, err := range s.Records(ctx) {
		if err != nil {
			return err
		}
		if err := handle(rec); err != nil {
			return err
		}
		if err := save(s.Position()); err != nil { // a short string
			return err
		}
	}
	// later, perhaps elsewhere:
	s, err = c.Subscribe(ctx, "orders", client.FromPosition(token))
	if err != nil {
		return err
	}
	s.Close()
	return nil
}
