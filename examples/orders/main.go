// SPDX-License-Identifier: Apache-2.0

// Command orders publishes three records of one key and reads the stream back from its beginning. It uses the node
// that `margay serve` runs and the stream `orders` there, and touches nothing else.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"margay.dev/client"
)

func main() {
	if err := run(context.Background(), log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out *log.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := client.ConnectNamed(ctx, "local") // the context that `margay serve` wrote
	if err != nil {
		return err
	}
	defer c.Close()

	p := c.Publisher("orders")
	for _, what := range []string{"placed", "paid", "shipped"} {
		ack, err := p.Publish(ctx, client.Record{Key: []byte("order-42"), Value: []byte(what)})
		if err != nil {
			return err // client.AsError(err).Class says whether the record may be stored all the same
		}
		out.Printf("%s: shard %d, offset %d, flushed %v", what, ack.Shard, ack.Offset, ack.Flushed)
	}

	s, err := c.Subscribe(ctx, "orders", client.FromEarliest(), client.UntilMark())
	if err != nil {
		return err
	}
	defer s.Close()
	for rec, err := range s.Records(ctx) {
		if err != nil {
			return err
		}
		out.Printf("%d/%d %s %s", rec.Shard, rec.Offset, rec.Key, rec.Value)
	}
	return nil
}
