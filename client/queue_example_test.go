// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"margay.dev/client"
)

func send(context.Context, *client.Message) error { return nil }

// A message that is due in five minutes, and one that goes before others.
func ExampleQueue() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	emails := c.Queue("emails")
	ack, err := emails.Push(ctx, client.Record{Key: []byte("user/1"), Value: []byte("how was it?")}, client.Delay(5*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("pushed", client.MessageID{Shard: ack.Shard, Offset: ack.Offset})
	if _, err := emails.Push(ctx, client.Record{Value: []byte("your code is 1234")}, client.Priority(9), client.TTL(10*time.Minute)); err != nil {
		log.Fatal(err)
	}
	// The first is not wanted any more.
	n, err := emails.Cancel(ctx, client.MessageID{Shard: ack.Shard, Offset: ack.Offset})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("cancelled", n)
}

// One message after the other.
func ExampleConsumer_Messages() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	workers, err := c.Queue("emails").Consume(ctx, "workers", client.ConsumerName("mailer-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer workers.Close()
	for m, err := range workers.Messages(ctx) {
		if err != nil {
			log.Fatal(err) // ctx has ended, or the group is no more: a lost broker does not end the loop
		}
		settle := m.AckAsync
		if err := send(ctx, m); err != nil {
			settle = func() *client.Settlement { return m.NackAsync(0, err.Error()) } // again, by the group's backoff
		}
		err = settle().Wait(ctx)
		if errors.Is(err, client.ErrNoLongerOwner) {
			log.Printf("%s took too long, attempt %d: somebody else has it", m.ID(), m.Attempt)
		} else if err != nil {
			log.Fatal(err)
		}
	}
}

// Eight at a time, until the process is told to end: then those in work are finished, and others get the rest at once.
func ExampleConsumer_Handle() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	workers, err := c.Queue("emails").Consume(ctx, "workers", client.Concurrency(8))
	if err != nil {
		log.Fatal(err)
	}
	context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := workers.Drain(late); err != nil {
			log.Print(err)
		}
	})
	errNoAddress := errors.New("no such address")
	err = workers.Handle(context.Background(), 8, func(ctx context.Context, m *client.Message) error {
		err := send(ctx, m) // ctx ends when the claim is lost, which is extended as long as this works
		switch {
		case errors.Is(err, errNoAddress):
			return client.RejectMessage(err) // a dead letter: trying again does not help
		case errors.Is(err, client.ErrOverloaded):
			return client.RetryAfter(time.Minute, err)
		}
		return err // nil acks it; an error, or a panic, lets it come again
	})
	if !errors.Is(err, client.ErrClosed) {
		log.Fatal(err)
	}
}

// What is done and what follows from it, both or neither: no failure doubles the next step.
func ExampleMessage_AckAndPublish() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	steps := c.Queue("steps")
	workers, err := steps.Consume(ctx, "workers")
	if err != nil {
		log.Fatal(err)
	}
	defer workers.Close()
	audit := c.Publisher("audit")
	for m, err := range workers.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		// To another stream: stored once, however often this message comes.
		if _, err := audit.Publish(ctx, client.Record{DedupID: m.DedupID(), Value: m.Value}); err != nil {
			log.Fatal(err)
		}
		next := client.Record{ShardKey: m.Key, Value: append([]byte("next of "), m.Value...)} // the message's key, so its shard
		if _, err := m.AckAndPublish(ctx, next); err != nil && !errors.Is(err, client.ErrNoLongerOwner) {
			log.Fatal(err)
		}
	}
}

// What failed for good is looked at, and tried again ten a second.
func ExampleGroup_Redrive() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	workers := c.Queue("emails").Group("workers")
	for m, err := range workers.DeadLetters(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.ID(), m.Attempts, m.Error)
	}
	n, err := workers.Redrive(ctx, client.RedriveOptions{Rate: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("redriven", n)
}

// A group with settings of its own, made when the program is installed.
func ExampleGroup_Ensure() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	err = c.Queue("emails").Group("per-user").Ensure(ctx, client.GroupConfig{
		AckWait: 2 * time.Minute, MaxAttempts: 5, Backoff: []time.Duration{time.Second, time.Minute}, OrderByKey: true,
	})
	if err != nil {
		log.Fatal(err)
	}
}
