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
