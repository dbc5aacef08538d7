// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"margay.dev/client"
	"margay.dev/client/admin"
)

// Connect as the context that `margay serve` wrote says, and publish one record.
func Example() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p := c.Publisher("orders")
	ack, err := p.Publish(ctx, client.Record{Key: []byte("42"), Value: []byte("paid")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ack.Shard, ack.Offset)
}

// Many records: hand them over without waiting, then flush.
func ExamplePublisher_PublishAsync() {
	ctx := context.Background()
	c, err := client.Connect(ctx, "margay://127.0.0.1:7420", client.WithToken(os.Getenv("MARGAY_TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p := c.Publisher("orders", client.WithCompression(client.Zstd))
	var last client.Future
	for i := range 100_000 {
		last = p.PublishAsync(ctx, client.Record{Key: fmt.Append(nil, i%100), Value: fmt.Append(nil, i)})
	}
	if err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	ack, _ := last.Wait(ctx)
	fmt.Println("the last one is at", ack.Offset)
}

// All or none within each shard.
func ExamplePublisher_PublishBatch() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	order := []byte("42")
	acks, err := c.Publisher("orders").PublishBatch(ctx,
		client.Record{Key: order, Value: []byte("created")},
		client.Record{Key: order, Value: []byte("paid")},
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, ack := range acks {
		fmt.Println("shard", ack.Shard, "from offset", ack.Offset, "records", len(ack.Records))
	}
}

// Read from the beginning, remember the position, and go on from it later.
func ExampleClient_Subscribe() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	start := client.FromEarliest()
	if token, err := os.ReadFile("position"); err == nil {
		start = client.FromPosition(string(token))
	}
	s, err := c.Subscribe(ctx, "orders", start, client.OnStatus(func(st client.Status) {
		if !st.Connected {
			fmt.Fprintln(os.Stderr, "reconnecting:", st.Err)
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for rec, err := range s.Records(ctx) {
		if err != nil {
			log.Fatal(err) // the last element: the end never comes silently
		}
		if rec.Gap != nil {
			fmt.Println("lost", rec.Gap.From, "to", rec.Gap.To, "because", rec.Gap.Reason)
		}
		fmt.Printf("%d/%d %s = %s\n", rec.Shard, rec.Offset, rec.Key, rec.Value)
		if err := os.WriteFile("position", []byte(s.Position()), 0o600); err != nil {
			log.Fatal(err)
		}
	}
}

// Errors have a code to ask for and a class that says what may be concluded.
func ExampleError() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Publisher("orders").Publish(ctx, client.Record{Value: []byte("x")})
	switch e := client.AsError(err); {
	case err == nil:
	case errors.Is(err, client.ErrNotFound):
		fmt.Println("create the stream first")
	case e.Class == client.Unknown:
		fmt.Println("it may be stored")
	case e.Class == client.Refused:
		fmt.Println("it is not stored; try again after", e.RetryAfter)
	default:
		fmt.Println("it is not stored, and will not be:", err)
	}
}

// Create a stream, or check that the one there is as it should be.
func Example_admin() {
	a, err := admin.Named("local")
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	s, err := a.EnsureStream(context.Background(), admin.StreamSpec{Name: "orders", Shards: new(4)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Name, s.Shards)
}

// Create a cache whose records live for half an hour, unless they are put with a TTL of their own.
func Example_adminCache() {
	a, err := admin.Named("local")
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	k, err := a.EnsureCache(context.Background(), admin.CacheSpec{Name: "sessions", TTL: new(admin.Duration(30 * time.Minute))})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(k.Name, k.TTL)
}
