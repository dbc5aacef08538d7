// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"margay.dev/client"
)

// A value for half an hour, and a lock that one of many gets.
func ExampleCache() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	sessions := c.Cache("sessions")
	if _, err := sessions.Put(ctx, "user/1", []byte("token"), client.TTL(30*time.Minute)); err != nil {
		log.Fatal(err)
	}
	e, err := sessions.Get(ctx, "user/1")
	switch {
	case errors.Is(err, client.ErrNotFound):
		fmt.Println("signed out")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Printf("%s until %v\n", e.Value, e.Expires)
	}

	version, err := sessions.Put(ctx, "cleaner", []byte("me"), client.IfAbsent(), client.TTL(10*time.Second))
	if errors.Is(err, client.ErrConflict) {
		fmt.Println("another one cleans")
		return
	}
	// As long as nobody else has written it, it is mine to give back.
	if _, err := sessions.Delete(ctx, "cleaner", client.IfVersion(version)); err != nil {
		log.Fatal(err)
	}
}

// A hundred calls a minute.
func ExampleCache_Add() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	calls, minute := c.Cache("calls"), time.Now().Unix()/60
	n, _, err := calls.Add(ctx, fmt.Sprintf("user/1/%d", minute), 1, client.TTL(2*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("let through:", n <= 100)
}

// Feature flags that cost no question: every process has them all, and hears within moments of a change.
func ExampleCache_Mirror() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	flags, err := c.Cache("flags").Mirror(ctx, client.Prefix("checkout/"))
	if err != nil {
		log.Fatal(err)
	}
	defer flags.Close()
	if e, ok := flags.Get("checkout/new"); ok && string(e.Value) == "on" {
		fmt.Println("the new checkout")
	}
	for e := range flags.Range("checkout/limits/") {
		fmt.Printf("%s = %s\n", e.Key, e.Value)
	}
}

// A copy kept by hand, with what the application does when it changes.
func ExampleCache_Watch() {
	ctx := context.Background()
	c, err := client.ConnectNamed(ctx, "local")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	w, err := c.Cache("routes").Watch(ctx, client.Pattern("region/+/address"), client.WithSnapshot())
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	routes := map[string]string{}
	for ch, err := range w.Changes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch ch.Kind {
		case client.Put:
			routes[ch.Entry.Key] = string(ch.Entry.Value)
		case client.Deleted, client.Expired:
			delete(routes, ch.Entry.Key)
		case client.Reset:
			clear(routes)
		case client.SnapshotComplete:
			fmt.Println("ready with", len(routes), "routes")
		}
	}
}
