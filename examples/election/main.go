// SPDX-License-Identifier: Apache-2.0

// Command election has two candidates for one office: the first gets it and falls silent, the second takes over, and what the
// first still does comes too late. It uses the node that `margay serve` runs and the cache `locks` there, and touches nothing
// but the key `reports` in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"margay.dev/client"
)

// term is how long who leads may be silent.
const term = 2 * time.Second

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
	locks := c.Cache("locks")

	var reports store
	ann, err := elect(ctx, locks, "reports", "ann")
	if err != nil {
		return err
	}
	out.Print("ann leads")
	if err := reports.write(ann, "by ann"); err != nil {
		return err
	}

	// Ann hangs and does not renew. Bob waits for the key to end, without asking again and again.
	bob, err := elect(ctx, locks, "reports", "bob")
	if err != nil {
		return err
	}
	out.Printf("bob leads, with a higher token: %v", bob > ann)
	held, err := renew(ctx, locks, "reports", "bob", bob)
	if err != nil {
		return err
	}
	if err := reports.write(bob, "by bob"); err != nil {
		return err
	}

	// Ann comes back and does not know that her time is over. The store does.
	if err := reports.write(ann, "by ann, late"); err == nil {
		return errors.New("a leader of the past was obeyed")
	}
	out.Printf("what ann does now is refused; the report is %q", reports.text)
	if _, err := renew(ctx, locks, "reports", "ann", ann); !errors.Is(err, client.ErrConflict) {
		return fmt.Errorf("ann renews what is not hers: %w", err)
	}

	_, err = locks.Delete(ctx, "reports", client.IfVersion(held)) // resigns, so that nobody has to wait
	return err
}

// elect returns once this candidate leads. The version of the key is the token of its term: it is higher than that of any
// term before.
func elect(ctx context.Context, locks *client.Cache, office, me string) (token uint64, err error) {
	for {
		token, err = locks.Put(ctx, office, []byte(me), client.IfAbsent(), client.TTL(term))
		leads, _, conflict := client.CurrentVersion(err)
		if !conflict {
			return token, err
		}
		if err := vacant(ctx, locks, office, leads); err != nil {
			return 0, err
		}
	}
}

// vacant waits until the key is deleted or expires. The watch begins behind the version that the refusal named, so what
// happens in between is not missed.
func vacant(ctx context.Context, locks *client.Cache, office string, behind uint64) error {
	w, err := locks.Watch(ctx, client.Key(office), client.FromVersion(behind))
	if err != nil {
		return err
	}
	defer w.Close()
	for ch, err := range w.Changes(ctx) {
		if err != nil || ch.Kind != client.Put {
			return err
		}
	}
	return nil
}

// renew begins the time of who leads anew, if it is still the one: call it several times in a term, and stop working when it
// fails. It returns the version to renew next; the token of the term stays the first.
func renew(ctx context.Context, locks *client.Cache, office, me string, version uint64) (uint64, error) {
	return locks.Put(ctx, office, []byte(me), client.IfVersion(version), client.TTL(term))
}

// store stands for what the leader works on: it obeys nobody whose token is older than one it has seen.
type store struct {
	newest uint64
	text   string
}

func (s *store) write(token uint64, text string) error {
	if token < s.newest {
		return fmt.Errorf("token %d, and %d was here", token, s.newest)
	}
	s.newest, s.text = token, text
	return nil
}
