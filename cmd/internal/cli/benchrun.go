// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/cluster/load/margay"
	"margay.dev/cmd/internal/child"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

// benchTarget is the node that is measured.
type benchTarget struct {
	cfg   margay.Config
	pid   int
	where string       // for a person
	node  *child.Child // nil unless it was started for the run
	place child.Place
}

// close ends what was started for the run.
func (t *benchTarget) close() error {
	if t.node != nil {
		t.node.Stop()
	}
	if t.place.Dir == "" {
		return nil
	}
	return os.RemoveAll(t.place.Dir)
}

// errNodeEnded is why a run ends whose own node does.
var errNodeEnded = errors.New("the node that was started for the run ended by itself")

// watch ends ctx when a node ends that was started for the run: clients would go on trying.
func (t *benchTarget) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if t.node != nil {
		go func() {
			select {
			case <-t.node.Exited():
				cancel(errNodeEnded)
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// benchLoad runs a workload against a node and prints what came of it.
func (a *app) benchLoad(ctx context.Context, f *benchFlags, args []string) (err error) {
	stream := ""
	if len(args) > 0 {
		stream = args[0]
	}
	t, err := a.benchTarget(ctx, f, stream)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	s := f.spec
	cfg := t.cfg
	cfg.Publishers, cfg.Shards, cfg.Fsync, cfg.Storage, cfg.Ack = s.Clients, s.Shards, f.fsync, f.storage, f.ack
	cfg.OneAtATime = s.InFlight == 1
	sharing := 1
	if f.connections > 0 {
		cfg.Connections, sharing = f.connections, (s.Clients+f.connections-1)/f.connections
	}
	// Room for the windows, and for what each record takes beside its bytes.
	cfg.BufferBytes = max(client.DefaultBufferBytes, 2*int64(sharing)*int64(s.InFlight)*int64(s.Size+256))
	cfg.Stream = stream
	ctx, cancel := t.watch(ctx)
	defer cancel()
	profiles, err := a.benchProfiles(f, t)
	if err != nil {
		return err
	}
	res, err := a.benchStream(ctx, cfg, s, t, profiles)
	err = errors.Join(err, profiles.close())
	if errors.Is(context.Cause(ctx), errNodeEnded) {
		return fmt.Errorf("bench: %w%s", errNodeEnded, t.place.LastWords())
	}
	if res == nil {
		return err
	}
	res.System = a.benchName(f, t, stream)
	printed := a.printBench(res, fmt.Sprintf("%.0f", res.Rate), func(b *strings.Builder) error { return load.Print(b, res) })
	return errors.Join(printed, err, failedBench(res))
}

// benched is a stream, a cache or a queue that is measured.
type benched interface {
	Shards() int
	Keep()
	Close() error
}

// openBench makes or finds what is measured.
func openBench(ctx context.Context, cfg *margay.Config, s *load.Spec) (benched, load.System, error) {
	if s.Workload.HasKeys() {
		c, err := margay.OpenCache(ctx, *cfg, s)
		if err != nil {
			return nil, nil, err
		}
		return c, load.Keyed(c), nil
	}
	if s.Workload.HasQueue() {
		q, err := margay.OpenQueue(ctx, *cfg, s)
		if err != nil {
			return nil, nil, err
		}
		return q, load.Queued(q), nil
	}
	sys, err := margay.Open(ctx, *cfg)
	return sys, sys, err
}

// benchStream makes or finds the stream, the cache or the queue, runs, and takes away what it made. There may be a result and an error: what was
// made is still there.
func (a *app) benchStream(ctx context.Context, cfg margay.Config, s *load.Spec, t *benchTarget, p *benchProfiles) (res *load.Result, err error) {
	open, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	made, sys, err := openBench(open, &cfg, s)
	if err != nil {
		err = exit.NoAnswer(err, t.where)
		if cfg.Stream != "" {
			err = aboutPreset(benchPreset(s.Workload), err, cfg.Stream)
		}
		return nil, err
	}
	defer func() {
		if errors.Is(context.Cause(ctx), errNodeEnded) {
			made.Keep()
		}
		err = errors.Join(err, made.Close())
	}()
	s.Shards = made.Shards()
	return a.benchRun(ctx, sys, *s, t.pid, p)
}

func (a *app) benchRun(ctx context.Context, sys load.System, s load.Spec, pid int, profiles *benchProfiles) (*load.Result, error) {
	var progress atomic.Pointer[load.Progress]
	progress.Store(&load.Progress{Phase: "connecting"})
	stop := a.Progress(func() string { return progress.Load().String() })
	defer stop()
	return load.Run(ctx, sys, s, load.Options{ServerPID: pid, Progress: func(p load.Progress) {
		progress.Store(&p)
		profiles.watch(ctx, p)
	}})
}

// benchName says what makes this another case than others.
func (a *app) benchName(f *benchFlags, t *benchTarget, stream string) string {
	parts := []string{"margay " + a.build().Version, t.where, "QUIC"}
	if strings.HasPrefix(t.cfg.Address, schemeTLS) {
		parts[2] = "TLS over TCP"
	}
	switch {
	case stream != "":
		parts = append(parts, benchPreset(f.spec.Workload)+" "+stream)
	case f.storage == control.StorageMemory:
		parts = append(parts, "in memory")
	case f.fsync == "":
		parts = append(parts, "fsync always")
	default:
		parts = append(parts, "fsync "+f.fsync)
	}
	if f.ack != "" {
		parts = append(parts, "ack "+f.ack)
	}
	return strings.Join(parts, ", ")
}

// printBench writes a result in the format that was asked for: raw is its one number.
func (a *app) printBench(result any, number string, text func(*strings.Builder) error) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(result)
	case output.Raw:
		return a.Line("%s", number)
	case output.Text: // for a person, below
	}
	var b strings.Builder
	if err := text(&b); err != nil {
		return err
	}
	return a.Line("%s", strings.TrimSuffix(b.String(), "\n"))
}

// failedBench makes messages that were lost or failed an error: figures of a run that dropped some of its work are none.
func failedBench(r *load.Result) error {
	if r.Errors == 0 && r.Missing == 0 {
		return nil
	}
	return &exit.Error{
		Err:  fmt.Errorf("%d messages failed and %d were never heard of; the first: %s", r.Errors, r.Missing, r.FirstError),
		Code: exit.Unknown,
		Data: "the messages were made up by the bench",
		Do:   "take the figures above for what the system did while it failed",
	}
}

// benchTarget finds the node, or starts one.
func (a *app) benchTarget(ctx context.Context, f *benchFlags, stream string) (*benchTarget, error) {
	if f.server == serverContext {
		return a.benchContext(f, stream)
	}
	t, err := a.benchNode(ctx, f.dir)
	if err != nil {
		return nil, err
	}
	t.cfg.Address = over(f.transport, t.cfg.Context.Addresses)
	return t, nil
}

// benchContext is the node that other commands would use.
func (a *app) benchContext(f *benchFlags, stream string) (*benchTarget, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	if len(t.Addresses) == 0 {
		return nil, exit.Misuse("no broker is named: add it to --address, as in margay://HOST:7420,http://HOST:7421")
	}
	if stream == "" { // the control plane makes one
		c, err := a.rest(t)
		if err != nil {
			return nil, err
		}
		c.Close()
	}
	cfg := margay.Config{Context: t.Context, Address: over(f.transport, t.Addresses), Token: t.token}
	return &benchTarget{cfg: cfg, pid: f.serverPID, where: cfg.Address}, nil
}

// over are the addresses with the transport that was asked for, or else that of each.
func over(transport string, addresses []string) string {
	all := make([]string, len(addresses))
	for i, a := range addresses {
		own, hostPort := scheme, a
		if before, after, ok := strings.Cut(a, "://"); ok {
			own, hostPort = before+"://", after
		}
		switch transport {
		case transportQUIC:
			own = scheme
		case transportTLS:
			own = schemeTLS
		}
		all[i] = own + hostPort
	}
	return strings.Join(all, ",")
}

// benchNode starts a node for the run.
func (a *app) benchNode(ctx context.Context, parent string) (t *benchTarget, err error) {
	if a.Executable == "" {
		return nil, errors.New("bench: the path of this binary is not known, so it cannot be started as a node; use --server context")
	}
	dir, err := os.MkdirTemp(parent, "margay-bench-")
	if err != nil {
		return nil, exit.Misuse("--dir: %w", err)
	}
	t = &benchTarget{where: "a node of its own", place: child.Place{Dir: dir}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("bench: %w", err), t.close())
		}
	}()
	a.warnVolatile(dir)
	if t.node, err = child.Start(ctx, a.Executable, t.place, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	k, err := control.LoadContext(t.place.Context())
	if err != nil {
		return nil, err
	}
	t.cfg.Context, t.pid = *k, t.node.PID
	a.Note("a node of its own is process %d, in %s until the end; --server context measures that of your context", t.pid, dir)
	return t, nil
}

func (a *app) warnVolatile(dir string) {
	if load.Volatile(dir) {
		a.Warn("%s lies in memory: a flush costs nothing there; name a directory on a disk with --dir", dir)
	}
}
