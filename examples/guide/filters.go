// SPDX-License-Identifier: Apache-2.0

// Package guide holds the Go of the guide's pages, so that it compiles and runs; it uses the client and nothing else, and
// its test refuses a page that shows something else.
package guide

import (
	"context"
	"fmt"

	"margay.dev/client"
)

func severalFilters(ctx context.Context, c *client.Client) (*client.Subscription, error) {
	s, err := c.Subscribe(ctx, "devices",
		client.FromEarliest(),
		client.Keys("device/+/telemetry", "alarm/#"),
		client.KeyExact("device/8"))
	return s, err
}

func oneKey(ctx context.Context, c *client.Client, handle func(client.Record) error) error {
	s, err := c.Subscribe(ctx, "devices", client.KeyExact("device/8"))
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
	}
	fmt.Println(s.Position(), s.Lag()) // where it stands, and how many committed records of any key are ahead
	return nil
}
