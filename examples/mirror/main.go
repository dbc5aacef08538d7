// SPDX-License-Identifier: Apache-2.0

// Command mirror answers from feature flags that it keeps in its own memory, while somebody changes them. It uses the node
// that `margay serve` runs and the cache `flags` there, and touches nothing but the keys below `checkout/`.
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

	flags := c.Cache("flags")
	if _, err := flags.Put(ctx, "checkout/new", []byte("off")); err != nil {
		return err
	}
	// The mirror is complete when it is returned, and follows every change from then on, over restarts of the broker too.
	mirror, err := flags.Mirror(ctx, client.Prefix("checkout/"))
	if err != nil {
		return err
	}
	defer mirror.Close()
	on := func(flag string) bool { // asks nobody: it may be called for every request
		e, ok := mirror.Get(flag)
		return ok && string(e.Value) == "on"
	}
	out.Printf("checkout/new: %v, checkout/express: %v", on("checkout/new"), on("checkout/express"))

	// Somebody changes the flags: another program, or `margay put flags checkout/new on`.
	if _, err := flags.Put(ctx, "checkout/new", []byte("on")); err != nil {
		return err
	}
	version, err := flags.Put(ctx, "checkout/express", []byte("on"), client.TTL(time.Hour))
	if err != nil {
		return err
	}
	// Nobody needs to wait, but who has written may want to read what it wrote.
	if err := mirror.WaitFor(ctx, "checkout/express", version); err != nil {
		return err
	}
	out.Printf("checkout/express: %v", on("checkout/express"))

	version, err = flags.Delete(ctx, "checkout/new")
	if err != nil {
		return err
	}
	if err := mirror.WaitFor(ctx, "checkout/new", version); err != nil {
		return err
	}
	for e := range mirror.Range("checkout/") {
		out.Printf("%s is %s", e.Key, e.Value)
	}
	return nil
}
