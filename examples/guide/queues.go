// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"
	"errors"

	"margay.dev/client"
)

var errNoAddress = errors.New("no such address")

func mail(ctx context.Context, c *client.Client, send func(context.Context, *client.Message) error) error {
	mailers, err := c.Queue("emails").Consume(ctx, "mailers") // the group is made when it is not there
	if err != nil {
		return err
	}
	defer mailers.Close()
	return mailers.Handle(ctx, 8, func(ctx context.Context, m *client.Message) error {
		err := send(ctx, m) // ctx ends when the claim is lost; it is extended for as long as this works
		if errors.Is(err, errNoAddress) {
			return client.RejectMessage(err)
		}
		return err // nil is an ack; an error or a panic, another attempt
	})
}

// bill is done once, however often its message comes.
func bill(ctx context.Context, invoices *client.Cache, m *client.Message, invoice []byte) error {
	_, err := invoices.Put(ctx, m.DedupID(), invoice, client.IfAbsent())
	if errors.Is(err, client.ErrConflict) {
		return nil // it was written before, and the ack was lost
	}
	return err
}
