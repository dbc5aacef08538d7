// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/admin"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

const patience = 30 * time.Second // that a test may take; no test passes by it

var errEnough = errors.New("enough")

// Each Go block of the guide stands in this package, at whatever depth, so the guide shows no program that does not
// compile.
func TestTheGuideShowsThisPackage(t *testing.T) {
	var sources strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		sources.WriteString(unindented(t, name))
	}
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "guide", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages of the guide: %v", err)
	}
	blocks := 0
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, rest := range strings.Split(string(page), "\n```go\n")[1:] {
			blocks++
			block, _, _ := strings.Cut(rest, "```")
			if !strings.Contains(sources.String(), flat(block)) {
				t.Errorf("%s shows what is not in this package:\n%s", name, block)
			}
		}
	}
	if blocks == 0 {
		t.Error("the guide shows no Go at all")
	}
}

func unindented(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return flat(string(source))
}

// flat takes the indentation away, which is deeper in a function than on a page.
func flat(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// start starts a node with streams of these names and two shards each, and connects to it.
func start(t *testing.T, streams ...string) (context.Context, *client.Client) {
	t.Helper()
	n := margaytest.Start(t)
	here := n.Context()
	api, err := control.NewClient(here.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	shards := 2
	for _, name := range streams {
		if _, err := api.CreateStream(ctx, here.Tenant, here.Namespace, control.StreamSpec{Name: name, Shards: &shards}); err != nil {
			t.Fatal(err)
		}
	}
	return ctx, n.Connect()
}

func publish(ctx context.Context, t *testing.T, c *client.Client, stream string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := c.Publisher(stream).Publish(ctx, client.Record{Key: []byte(key), Value: []byte("of " + key)}); err != nil {
			t.Fatal(err)
		}
	}
}

// keysOf reads n records.
func keysOf(ctx context.Context, t *testing.T, s *client.Subscription, n int) []string {
	t.Helper()
	var keys []string
	for rec, err := range s.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if keys = append(keys, string(rec.Key)); len(keys) == n {
			break
		}
	}
	slices.Sort(keys)
	return keys
}

func TestFilters(t *testing.T) {
	ctx, c := start(t, "devices")
	publish(ctx, t, c, "devices", "device/7/telemetry", "device/7", "alarm", "device/8", "alarm/fire")
	s, err := severalFilters(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := keysOf(ctx, t, s, 4), []string{"alarm", "alarm/fire", "device/7/telemetry", "device/8"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got := make(chan string)
	done := make(chan error)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		done <- oneKey(reading, c, func(rec client.Record) error {
			select {
			case got <- string(rec.Key):
			case <-reading.Done():
			}
			return errEnough
		})
	}()
	for key := ""; key == ""; { // it starts at what is latest, whenever that is
		publish(ctx, t, c, "devices", "device/9", "device/8")
		select {
		case key = <-got:
			if key != "device/8" {
				t.Errorf("got %q", key)
			}
		default:
		}
	}
	if err := <-done; !errors.Is(err, errEnough) {
		t.Errorf("it ended with %v", err)
	}
}

func TestSubscriptions(t *testing.T) {
	ctx, c := start(t, "orders")
	publish(ctx, t, c, "orders", "a", "b", "c")
	var place string
	err := withTheirPlace(ctx, c, func(_ client.Record, at string) error {
		place = at
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	s, err := goOn(ctx, c, place)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	publish(ctx, t, c, "orders", "d")
	if got := keysOf(ctx, t, s, 3); len(got) != 3 || got[2] != "d" {
		t.Errorf("behind the first record came %q", got)
	}
	if n, err := forASecond(ctx, s); n != 0 || err != nil {
		t.Errorf("nothing more came: %d bytes, %v", n, err)
	}
	publish(ctx, t, c, "orders", "e")
	if got := keysOf(ctx, t, s, 1); got[0] != "e" {
		t.Errorf("after an interruption came %q", got)
	}
	all, err := c.Subscribe(ctx, "orders", client.FromEarliest(), client.UntilMark())
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	if missed, err := countMissing(ctx, all); missed != 0 || err != nil {
		t.Errorf("missed %d, %v", missed, err)
	}
}

func TestDurable(t *testing.T) {
	ctx, c := start(t, "orders", "devices")
	publish(ctx, t, c, "orders", "a", "b", "c")
	n := 0
	for range 2 { // who comes back begins with what was being handled
		err := durable(ctx, c, func(client.Record) error {
			if n++; n%2 == 0 {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
	}
	s, err := c.Subscribe(ctx, "orders", client.Durable("billing"), client.UntilMark(), client.ManualCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Resumed() {
		t.Error("it is new for the third time")
	}
	err = byHand(ctx, s, func([]client.Record) error { return nil })
	if err != nil {
		t.Error(err)
	}
	if err := forget(ctx, c); err != nil {
		t.Error(err)
	}
	last, err := presence(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Clear(ctx); err != nil {
		t.Error(err)
	}
}

func TestPublishing(t *testing.T) {
	ctx, c := start(t, "orders", "readings")
	p := c.Publisher("orders")
	if err := together(ctx, p, "order-42", [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")}); err != nil {
		t.Fatal(err)
	}
	if err := compareAndSet(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := compareAndSet(ctx, p); !errors.Is(err, client.ErrConflict) {
		t.Errorf("an account that is there is made again: %v", err)
	}
	for range 2 {
		if err := once(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	lines := [][]byte{[]byte("1"), []byte("2"), []byte("3"), []byte("4")}
	for n := range len(lines) { // interrupted behind every line, and begun from the first
		if err := importLines(ctx, c, lines[:n+1]); err != nil {
			t.Fatal(err)
		}
	}
	for stream, want := range map[string]int{"orders": 7, "readings": 4} {
		s, err := c.Subscribe(ctx, stream, client.FromEarliest(), client.UntilMark())
		if err != nil {
			t.Fatal(err)
		}
		if got := keysOf(ctx, t, s, 0); len(got) != want {
			t.Errorf("%s holds %d records, want %d", stream, len(got), want)
		}
		s.Close()
	}
}

func TestCaches(t *testing.T) {
	n := margaytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := admin.FromContext(n.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, name := range []string{"sessions", "flags", "locks"} {
		if _, err := a.EnsureCache(ctx, admin.CacheSpec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	c := n.Connect()
	if err := session(ctx, c); err != nil {
		t.Fatal(err)
	}
	flags := c.Cache("flags")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := change(ctx, flags, "checkout/new", func(old []byte) []byte { return append(old, 'x') }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if e, err := flags.Get(ctx, "checkout/new"); err != nil || string(e.Value) != "xxxxxxxx" {
		t.Errorf("eight changes came to %q, %v", e.Value, err)
	}
	if err := mirrored(ctx, c); err != nil {
		t.Error(err)
	}
	short, end := context.WithTimeout(ctx, time.Second/4)
	defer end()
	if now, err := follow(short, flags); err == nil || len(now) > 1 {
		t.Errorf("followed to %v, %v", now, err)
	}
	locks := c.Cache("locks")
	first, err := elect(ctx, locks, "reports", "ann")
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan uint64)
	go func() {
		defer close(second)
		token, err := elect(ctx, locks, "reports", "bob")
		if err != nil {
			t.Error(err)
		}
		second <- token
	}()
	if _, err := locks.Delete(ctx, "reports", client.IfVersion(first)); err != nil {
		t.Error(err)
	}
	if token := <-second; token <= first {
		t.Errorf("the second term has token %d, the first had %d", token, first)
	}
}

func TestQueues(t *testing.T) {
	ctx, c := start(t, "emails", "invoices")
	if _, err := c.Queue("emails").Push(ctx, client.Record{Key: []byte("ada"), Value: []byte("welcome")}); err != nil {
		t.Fatal(err)
	}
	working, done := context.WithCancel(ctx)
	defer done()
	err := mail(working, c, func(ctx context.Context, m *client.Message) error {
		defer done()
		for range 2 {
			if err := bill(context.WithoutCancel(ctx), c.Cache("invoices"), m, m.Value); err != nil {
				t.Error(err)
			}
		}
		return errNoAddress
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	for m, err := range c.Queue("emails").Group("mailers").DeadLetters(ctx) {
		if err != nil || m.Error != errNoAddress.Error() {
			t.Errorf("%+v, %v", m, err)
		}
	}
}
