// SPDX-License-Identifier: Apache-2.0

// Package demo shows what the platform is for, end to end and for real: it runs a node as a process of
// its own below a temporary directory, kills it in the middle of publishing, and compares what is there
// afterwards with what was acknowledged, byte for byte. It touches nothing of the user's and refuses to
// call a run good that lost, doubled or changed a record.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"margay.dev/client"
	"margay.dev/cmd/internal/child"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/examples/data"
	"margay.dev/wire/control"
)

const (
	stream = "birdstrikes"
	shards = 4
	// within bounds everything but the waiting of --stay: a demo that hangs must say so.
	within = time.Minute
)

// Config is what a demo is told.
type Config struct {
	Executable string // this binary
	Margay     string // how a user calls it
	Stay       bool
	TLS        bool // clients over TLS on TCP instead of QUIC
	Printer    *output.Printer
}

type demo struct {
	Config
	place   child.Place
	node    *child.Child
	context *control.Context
	client  *client.Client
	account *account
	tail    *tail
	result  Result
	began   time.Time
	keep    bool // leave the directory behind, as evidence
}

// Run runs the demo. It returns nil only when every acknowledged record is there, once, unchanged.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Executable == "" {
		return errors.New("demo: the path of this binary is not known, so it cannot be started again as a node")
	}
	dir, err := os.MkdirTemp("", "margay-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d := &demo{Config: cfg, place: child.Place{Dir: dir}, began: time.Now(), account: newAccount(slices.Collect(data.Lines()))}
	defer func() {
		d.close()
		if !d.keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := d.show(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if cfg.Stay {
		return d.stay(ctx)
	}
	return nil
}

func (d *demo) show(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not done within %v", within))
	defer cancel()
	for _, step := range []func(context.Context) error{
		d.startNode, d.createStream, d.startTail, d.publishThroughCrash, d.readBack, d.endTail,
	} {
		if err := step(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
				return fmt.Errorf("%w: %w", cause, err)
			}
			return err
		}
	}
	d.result.Seconds = time.Since(d.began).Seconds()
	if err := d.printResult(); err != nil {
		return err
	}
	return d.verdict()
}

func (d *demo) close() {
	if d.tail != nil {
		d.tail.close()
	}
	if d.client != nil {
		d.client.Close()
	}
	if d.node != nil {
		d.node.Stop()
	}
}

func (d *demo) startNode(ctx context.Context) (err error) {
	d.step("%d real records, one node, one crash in the middle. Everything is in %s.", len(d.account.lines), d.place.Dir)
	began := time.Now()
	// Port 0 is a free port of the system's choice. The second start must use the same ones, as any
	// node does that comes back.
	if d.node, err = child.Start(ctx, d.Executable, d.place, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"); err != nil {
		return err
	}
	d.step("node     started in %v: %s, process %d", since(began), d.node.Address, d.node.PID)
	d.context, err = control.LoadContext(d.place.Context())
	return err
}

func (d *demo) createStream(ctx context.Context) error {
	c, err := control.NewClient(d.context.Client())
	if err != nil {
		return err
	}
	defer c.Close()
	n := shards
	s, err := c.CreateStream(ctx, d.context.Tenant, d.context.Namespace, control.StreamSpec{Name: stream, Shards: &n})
	if err != nil {
		return err
	}
	d.step("stream   %s: %d shards; fsync %s: a record is on the disk before it is acknowledged", s.Name, s.Shards, s.Fsync)
	address := "margay://"
	if d.TLS {
		address = "margay+tls://"
	}
	address += d.context.Addresses[0]
	d.client, err = client.Connect(ctx, address, client.WithContext(*d.context))
	return err
}

func (d *demo) startTail(ctx context.Context) error {
	sub, err := d.client.Subscribe(ctx, stream, client.FromEarliest(), client.Overflow(client.PolicyCatchUp))
	if err != nil {
		return err
	}
	d.tail = follow(sub, len(d.account.lines), func(rec client.Record) {
		d.step("tail     shard %d offset %-4d %s", rec.Shard, rec.Offset, shorten(output.Show(rec.Value)))
	})
	return nil
}

func (d *demo) readBack(ctx context.Context) error {
	sub, err := d.client.Subscribe(ctx, stream, client.FromEarliest(), client.UntilMark(), client.Overflow(client.PolicyCatchUp))
	if err != nil {
		return err
	}
	defer sub.Close()
	u := newAudit(d.account)
	for rec, err := range sub.Records(ctx) {
		if err != nil {
			return fmt.Errorf("read everything back: %w", err)
		}
		u.add(rec)
	}
	d.result.take(u.close())
	return nil
}

func (d *demo) endTail(ctx context.Context) error {
	seen, disorder, err := d.tail.wait(ctx)
	d.result.Tailed, d.result.Disorder = seen, disorder
	return err
}

// verdict makes a broken promise an error: the exit code must not say that all is well.
func (d *demo) verdict() error {
	if d.result.sound() {
		return nil
	}
	d.keep = true
	return &exit.Error{
		Err:  errors.New("what is there is not what was acknowledged: this is a defect of margay"),
		Code: exit.Unknown,
		Data: "the node's data and log are kept in " + d.place.Dir,
		Do:   "please report it with that directory",
	}
}

// stay keeps the node for the user to try, until he ends it.
func (d *demo) stay(ctx context.Context) error {
	where := " --context " + d.place.Context()
	d.step("\nThe node stays at %s until you press Ctrl-C. Paste into another terminal:\n", d.node.Address)
	d.step("  %s sub %s --from earliest --count 3%s", d.Margay, stream, where)
	d.step("  %s pub %s 'my own record'%s", d.Margay, stream, where)
	d.step("  %s stream info %s%s", d.Margay, stream, where)
	if err := d.Printer.Flush(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-d.node.Exited():
		d.keep = true
		return fmt.Errorf("demo: the node ended by itself%s", d.place.LastWords())
	}
}

// step tells a person what happens; a program waits for the result.
func (d *demo) step(format string, args ...any) {
	if d.Printer.Format() == output.Text {
		_ = d.Printer.Line(format, args...) // a lost standard output shows when the result is printed
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

func shorten(s string) string {
	const width = 60
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}
