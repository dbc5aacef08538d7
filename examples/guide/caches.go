// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"margay.dev/client"
)

func session(ctx context.Context, c *client.Client) error {
	sessions := c.Cache("sessions")
	version, err := sessions.Put(ctx, "user/1", []byte("token"), client.TTL(30*time.Minute))
	if err != nil {
		return err // client.AsError(err).Class says whether the value may be there all the same
	}
	e, err := sessions.Get(ctx, "user/1")
	if errors.Is(err, client.ErrNotFound) {
		return errors.New("signed out")
	}
	if err != nil {
		return err
	}
	fmt.Println(string(e.Value), e.Version == version, time.Until(e.Expires))
	return nil
}

// change makes a new value of the one that is there, whoever else does the same.
func change(ctx context.Context, k *client.Cache, key string, f func(old []byte) []byte) error {
	for {
		e, err := k.Get(ctx, key)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return err
		}
		_, err = k.Put(ctx, key, f(e.Value), client.IfVersion(e.Version)) // version 0: the key is not there
		if !errors.Is(err, client.ErrConflict) {
			return err
		}
	}
}

func follow(ctx context.Context, flags *client.Cache) (map[string]string, error) {
	w, err := flags.Watch(ctx, client.Prefix("checkout/"), client.WithSnapshot())
	if err != nil {
		return nil, err
	}
	defer w.Close()
	now := map[string]string{}
	for ch, err := range w.Changes(ctx) {
		if err != nil {
			return now, err
		}
		switch ch.Kind {
		case client.Put:
			now[ch.Entry.Key] = string(ch.Entry.Value)
		case client.Deleted, client.Expired:
			delete(now, ch.Entry.Key)
		case client.Reset:
			clear(now) // a snapshot follows
		case client.SnapshotComplete:
			fmt.Println("this is what there was:", now)
		}
	}
	return now, nil
}

func mirrored(ctx context.Context, c *client.Client) error {
	flags, err := c.Cache("flags").Mirror(ctx, client.Prefix("checkout/"))
	if err != nil {
		return err
	}
	defer flags.Close()
	if e, ok := flags.Get("checkout/new"); ok && string(e.Value) == "on" {
		fmt.Println("the new checkout, as of version", e.Version)
	}
	for e := range flags.Range("checkout/") {
		fmt.Printf("%s is %s\n", e.Key, e.Value)
	}
	return nil
}

// elect returns once this candidate leads. The version of the key is the token of its term, higher than any before.
func elect(ctx context.Context, locks *client.Cache, office, me string) (token uint64, err error) {
	for {
		token, err = locks.Put(ctx, office, []byte(me), client.IfAbsent(), client.TTL(10*time.Second))
		leads, _, conflict := client.CurrentVersion(err)
		if !conflict {
			return token, err
		}
		if err := vacant(ctx, locks, office, leads); err != nil {
			return 0, err
		}
	}
}

// vacant waits until who leads resigns or its time ends: what happened since the refusal is told, too.
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
