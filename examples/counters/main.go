// SPDX-License-Identifier: Apache-2.0

// Command counters has ten goroutines count to a thousand together, and lets through so many calls and no more. It uses the
// node that `margay serve` runs and the cache `counters` there, and touches nothing but two keys of its own in it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"margay.dev/client"
)

func main() {
	if err := run(context.Background(), log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out *log.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := client.ConnectNamed(ctx, "local") // the context that `margay serve` wrote
	if err != nil {
		return err
	}
	defer c.Close()
	counters := c.Cache("counters")
	if _, err := counters.Delete(ctx, "visits"); err != nil {
		return err
	}

	// The broker adds, in its order of writes: no increment is lost, and one that is sent again counts once.
	errs := make([]error, 10)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for range 100 {
				if _, _, err := counters.Add(ctx, "visits", 1); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	e, err := counters.Get(ctx, "visits")
	if err != nil {
		return err
	}
	visits, err := e.Int64()
	if err != nil {
		return err
	}
	out.Printf("visits: %d", visits)

	return limit(ctx, counters, out)
}

// limit lets through three calls of this minute. A minute that is over needs no cleaning up: its counter ends by itself.
func limit(ctx context.Context, counters *client.Cache, out *log.Logger) error {
	minute := fmt.Sprintf("calls/ann/%d", time.Now().Unix()/60)
	for call := range 4 {
		n, _, err := counters.Add(ctx, minute, 1, client.TTL(2*time.Minute))
		if err != nil {
			return err
		}
		out.Printf("call %d of ann: let through %v", call+1, n <= 3)
	}
	return nil
}
