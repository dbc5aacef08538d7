// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/cmd/internal/work"
	"margay.dev/wire/code"
)

// worker is one `margay work`.
type worker struct {
	a       *app
	q       *queued
	g       *client.Consumer
	f       *workFlags
	command *work.Command

	begun, running, done, failed atomic.Int64
	broken                       atomic.Pointer[exit.Error] // why no command can be started any more
}

// run works until ctx ends, the count is reached or the consumer ends. Commands that run when ctx ends may finish.
func (w *worker) run(ctx context.Context) error {
	handling, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	taking, enough := context.WithCancel(ctx) // its end is that of taking messages
	defer enough()
	over := make(chan struct{})
	var drained error
	var drain sync.WaitGroup
	drain.Go(func() {
		select {
		case <-taking.Done():
			drained = w.drain(ctx, kill)
		case <-over:
		}
	})
	err := w.g.Handle(handling, w.f.concurrency, func(ctx context.Context, m *client.Message) error {
		return w.one(ctx, m, enough)
	})
	ordered := taking.Err() != nil
	close(over)
	drain.Wait()
	w.a.Note("%d done, %d failed", w.done.Load(), w.failed.Load())
	switch {
	case w.broken.Load() != nil:
		return w.broken.Load()
	case !ordered:
		return aboutGroup(w.q, w.f.group, err)
	case drained != nil && !errors.Is(drained, code.Closed):
		return aboutGroup(w.q, w.f.group, drained)
	}
	return nil
}

// drain takes no more messages and waits for the commands that run: for as long as they take, or once the command line was
// interrupted until they have had their time.
func (w *worker) drain(interrupted context.Context, kill context.CancelFunc) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(interrupted))
	defer cancel()
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-interrupted.Done():
		case <-ended:
			return
		}
		if n := w.running.Load(); n > 0 {
			w.a.Warn("%s: stopping: %s may take %v to end; a second signal ends at once", w.q.full, count(int(n), "command"), &w.f.drain)
		}
		late := time.NewTimer(time.Duration(w.f.drain))
		defer late.Stop()
		for _, then := range []func(){kill, cancel} {
			select {
			case <-late.C:
				then()
				late.Reset(work.DefaultGrace + stopSlack)
			case <-ended:
				return
			}
		}
	})
	err := w.g.Drain(ctx)
	close(ended)
	watch.Wait()
	return err
}

// one runs the command for a message and settles that.
func (w *worker) one(ctx context.Context, m *client.Message, enough context.CancelFunc) error {
	n := uint64(w.begun.Add(1))
	if w.f.count > 0 && n >= w.f.count {
		enough()
	}
	if w.f.count > 0 && n > w.f.count || w.broken.Load() != nil {
		return m.Release(ctx)
	}
	w.running.Add(1)
	result, err := w.command.Run(ctx, m.Value, w.environment(m))
	w.running.Add(-1)
	if err != nil {
		if !work.Found(err) { // no message would fare better
			w.broken.CompareAndSwap(nil, &exit.Error{Err: err, Code: exit.Usage, Data: "the message was given back; those before it are settled"})
			enough()
			return m.Release(ctx)
		}
		result = work.Result{Outcome: work.Retry, Status: -1, Reason: err.Error()}
	}
	return w.settle(ctx, m, &result)
}

// settle does what the end of the command means, waits until that is durable, and tells.
func (w *worker) settle(ctx context.Context, m *client.Message, r *work.Result) error {
	var s *client.Settlement
	outcome := "given_back"
	switch r.Outcome {
	case work.Done:
		outcome, s = "done", m.AckAsync()
	case work.Rejected:
		outcome, s = "rejected", m.RejectAsync(r.Reason)
	case work.Retry:
		outcome, s = "failed", m.NackAsync(0, r.Reason)
	case work.Stopped:
		if errors.Is(context.Cause(ctx), code.NoLongerOwner) {
			w.failed.Add(1)
			return w.tell(m, r, "lost", nil)
		}
		_ = m.Release(ctx) // on its way: Drain waits for it
		return w.tell(m, r, outcome, nil)
	}
	err := s.Wait(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // Drain waits for it, and says what became of it
	}
	if r.Outcome == work.Done && err == nil {
		w.done.Add(1)
	} else {
		w.failed.Add(1)
	}
	return w.tell(m, r, outcome, err)
}

// workedView is what became of a message, in JSON.
type workedView struct {
	ID          string  `json:"id"`
	Shard       uint32  `json:"shard"`
	Offset      uint64  `json:"offset"`
	Key         *string `json:"key"`
	KeyEncoding string  `json:"key_encoding,omitempty"`
	Attempt     int     `json:"attempt"`
	Outcome     string  `json:"outcome"`
	Status      int     `json:"status"` // of the command; -1 when it did not end by itself
	Reason      string  `json:"reason,omitempty"`
	Seconds     float64 `json:"seconds"`
	Error       string  `json:"error,omitempty"` // of settling
}

// tell is quiet about what is done. Its error is that of standard output, for which the message is as good as settled.
func (w *worker) tell(m *client.Message, r *work.Result, outcome string, err error) error {
	if w.a.Format() == output.JSON {
		v := workedView{
			ID: m.ID().String(), Shard: m.Shard, Offset: m.Offset, Attempt: m.Attempt,
			Outcome: outcome, Status: r.Status, Reason: r.Reason, Seconds: r.Ran.Seconds(),
		}
		record := viewRecord(&m.Record)
		v.Key, v.KeyEncoding = record.Key, record.KeyEncoding
		if err != nil {
			v.Error = err.Error()
		}
		return w.a.JSON(v)
	}
	at := fmt.Sprintf("%s message %s (attempt %d)", w.q.name, m.ID(), m.Attempt)
	switch {
	case errors.Is(err, code.NoLongerOwner):
		w.a.Warn("%s: %s, but too late: the claim had ended, and another may have it", at, outcome)
	case err != nil:
		w.a.Warn("%s: %s, but that is not settled: %s", at, outcome, err)
	case outcome == "lost":
		w.a.Warn("%s: the claim is lost, and the command was ended: another may have it", at)
	case outcome == "given_back":
		w.a.Warn("%s: the command was ended, and the message given back", at)
	case outcome == "failed":
		w.a.Warn("%s: failed: %s", at, r.Reason)
	case outcome == "rejected":
		w.a.Warn("%s: rejected, and a dead letter: %s", at, r.Reason)
	}
	return nil
}

// environment is what a command is told of its message besides the value.
func (w *worker) environment(m *client.Message) []string {
	env := []string{
		"MARGAY_QUEUE=" + w.q.full, "MARGAY_GROUP=" + w.f.group, "MARGAY_ID=" + m.ID().String(),
		"MARGAY_SHARD=" + strconv.FormatUint(uint64(m.Shard), 10), "MARGAY_OFFSET=" + strconv.FormatUint(m.Offset, 10),
		"MARGAY_ATTEMPT=" + strconv.Itoa(m.Attempt), "MARGAY_APPEND_TIME=" + utc(m.AppendTime).Format(time.RFC3339Nano),
		"MARGAY_DEDUP_ID=" + m.DedupID(),
	}
	if m.Key != nil {
		env = append(env, work.Variable("MARGAY_KEY", m.Key)...)
	}
	for _, h := range m.Headers {
		env = append(env, work.Variable(work.HeaderName(h.Key), h.Value)...)
	}
	headers, err := json.Marshal(viewRecord(&m.Record).Headers)
	if err != nil {
		headers = []byte("[]") // strings always are JSON
	}
	return append(env, "MARGAY_HEADERS="+string(headers))
}
