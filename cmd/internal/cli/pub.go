// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/arg"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/lines"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

const (
	// linesInFlight bounds the lines without an answer. Their bytes are bounded by the client's buffer.
	linesInFlight = 64 << 10
	// answerGrace is how long an interrupted `pub --lines` waits for answers that are on their way.
	answerGrace = 5 * time.Second
)

type pubFlags struct {
	key     string
	headers []string
	lines   bool
	keyFrom string
	ack     string
	delay   duration
	ttl     duration

	shardKey  string
	dedupID   string
	ifVersion uint64
}

func (a *app) pubCommand() *cobra.Command {
	var f pubFlags
	cmd := &cobra.Command{
		Use:   "pub STREAM [VALUE]",
		Short: "Publish a record, or a record for each line of standard input",
		Long: `Publish VALUE, or standard input as one value, or with --lines one record for each line.

Lines end at \n only; an empty line is an empty value. A line that fails stops the command with a
non-zero exit, and it says which lines are certainly in, certainly not in, and unknown. With --output
json each acknowledged record is one object, with the number of its line.`,
		Example: `  margay pub orders '{"id":42}' --key 42
  margay pub orders '{"id":42,"paid":true}' --key 42 --if-version 7
  margay pub orders --lines --key-from json:/id < orders.jsonl`,
		Args:              cobra.RangeArgs(1, 2),
		Annotations:       writes(),
		ValidArgsFunction: a.completeStreams,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pub(cmd, args, &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.key, "key", "", "key of the record; decides the shard, and records of one key keep their order")
	flags.StringArrayVar(&f.headers, "header", nil, "header of the record as NAME=VALUE; may be repeated")
	flags.BoolVar(&f.lines, "lines", false, "publish each line of standard input")
	flags.StringVar(&f.keyFrom, "key-from", "", "take each key from its value: re:REGEXP (first group or whole match) or json:/POINTER")
	flags.StringVar(&f.ack, "ack", "", "what an ack waits for: none, leader or quorum (the stream's rule when not given)")
	flags.Var(&f.delay, "delay", "hold the record back from consumer groups this long")
	flags.Var(&f.ttl, "ttl", "the record's life; none when 0s")
	flags.StringVar(&f.shardKey, "shard-key", "", "what decides the shard in place of the key; not stored")
	flags.StringVar(&f.dedupID, "dedup-id", "", "store the record once, however often it comes with this id within the stream's dedup window")
	flags.Uint64Var(&f.ifVersion, "if-version", 0, "store the record only if its key has this version (one above the offset of its newest record; 0: none)")
	complete(cmd, "ack", "none", "leader", "quorum")
	return cmd
}

// recipe makes a record of a value, by the flags.
type recipe struct {
	key     []byte
	keyFrom arg.KeyFunc
	headers []client.Header
	delay   time.Duration
	ttl     time.Duration

	priority uint8
	shardKey []byte
	dedupID  string
	options  []client.RecordOption
}

func (f *pubFlags) recipe(given func(flag string) bool) (*recipe, error) {
	r := &recipe{delay: time.Duration(f.delay), ttl: time.Duration(f.ttl), dedupID: f.dedupID}
	if err := f.once(r, given); err != nil {
		return nil, err
	}
	if given("key") {
		if f.keyFrom != "" {
			return nil, exit.Misuse("--key and --key-from: give one of them")
		}
		r.key = []byte(f.key) // --key "" is an empty key, which is not "no key"
	}
	if f.keyFrom != "" {
		var err error
		if r.keyFrom, err = arg.ParseKeyFrom(f.keyFrom); err != nil {
			return nil, exit.Misuse("--key-from: %w", err)
		}
	}
	for _, h := range f.headers {
		name, value, err := arg.Header(h)
		if err != nil {
			return nil, exit.Misuse("--header: %w", err)
		}
		r.headers = append(r.headers, client.Header{Key: name, Value: []byte(value)})
	}
	if r.ttl > 0 && r.ttl <= r.delay {
		return nil, exit.Misuse("--ttl %v ends before --delay %v is over: nobody would ever get the record", &f.ttl, &f.delay)
	}
	return r, nil
}

// once takes the flags that speak of one record.
func (f *pubFlags) once(r *recipe, given func(flag string) bool) error {
	for _, flag := range []string{"dedup-id", "if-version"} {
		if f.lines && given(flag) {
			return exit.Misuse("--%s is about one record: do without --lines", flag)
		}
	}
	if given("shard-key") {
		r.shardKey = []byte(f.shardKey)
	}
	if given("dedup-id") && f.dedupID == "" {
		return exit.Misuse("--dedup-id is empty")
	}
	if given("if-version") {
		if !given("key") && f.keyFrom == "" {
			return exit.Misuse("--if-version compares the version of a key: give --key or --key-from")
		}
		r.options = append(r.options, client.IfVersion(f.ifVersion))
	}
	return nil
}

func (r *recipe) record(value []byte) (client.Record, error) {
	rec := client.Record{
		Key: r.key, Value: value, Headers: r.headers, Delay: r.delay, TTL: r.ttl, Priority: r.priority,
		ShardKey: r.shardKey, DedupID: r.dedupID,
	}.With(r.options...)
	if r.keyFrom == nil {
		return rec, nil
	}
	key, err := r.keyFrom(value)
	if err != nil {
		return rec, code.New(code.BadRequest, "--key-from %w", err)
	}
	rec.Key = key
	return rec, nil
}

func (a *app) pub(cmd *cobra.Command, args []string, f *pubFlags) error {
	recipe, err := f.recipe(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	ack, err := ackLevel(f.ack)
	if err != nil {
		return err
	}
	if err := f.oneSource(args, a.Streams.InTerminal); err != nil {
		return err
	}
	options := append(a.deliveryOptions(cmd, f.lines), client.WithAck(ack))
	c, full, name, err := a.connectTo(cmd.Context(), args[0], options...)
	if err != nil {
		return err
	}
	defer c.Close()
	p := c.Publisher(full)
	if f.lines {
		return a.pubLines(cmd.Context(), recipe, &lineWriter{
			preset: control.PresetStream, name: name, things: "records", acked: a.printAck,
			send: func(ctx context.Context, rec client.Record) func(context.Context) (client.Ack, error) {
				return p.PublishAsync(ctx, rec).Wait
			},
		})
	}
	value, err := a.oneValue(args)
	if err != nil {
		return err
	}
	return a.pubOne(cmd.Context(), p, recipe, value, name)
}

// oneSource refuses values from two places, and from none.
func (f *pubFlags) oneSource(args []string, terminal bool) error {
	if f.lines && len(args) == 2 {
		return exit.Misuse("VALUE and --lines: give one of them")
	}
	if len(args) == 1 && !f.lines && terminal {
		return exit.Misuse("no value: give VALUE, pipe one in, or use --lines")
	}
	return nil
}

// deliveryOptions bound how long a publish is tried: a person waits for one record; a pipeline is better off riding out a
// restart.
func (a *app) deliveryOptions(cmd *cobra.Command, lines bool) []client.Option {
	if lines && !cmd.Flags().Changed("timeout") {
		return nil
	}
	return []client.Option{client.WithDeliveryTimeout(min(a.global.timeout, client.MaxDeliveryTimeout))}
}

func ackLevel(s string) (client.AckLevel, error) {
	switch s {
	case "":
		return client.AckDefault, nil
	case control.AckNone:
		return client.AckNone, nil
	case control.AckLeader:
		return client.AckLeader, nil
	case control.AckQuorum:
		return client.AckQuorum, nil
	}
	return 0, exit.Misuse("--ack %q: want none, leader or quorum", s)
}

func (a *app) pubOne(ctx context.Context, p *client.Publisher, r *recipe, value []byte, name string) error {
	rec, err := r.record(value)
	if err != nil {
		return err
	}
	ack, err := p.Publish(ctx, rec)
	if err != nil {
		return lostCompare(aboutStream(err, name))
	}
	if a.Format() == output.Text {
		return a.Line("%s shard %d offset %d%s", a.Bold(name), ack.Shard, ack.Offset, a.Dim(reachedByAck(ack)))
	}
	return a.printAck(0, ack)
}

// lostCompare adds which version the key has to the error of one that was to have another.
func lostCompare(err error) error {
	version, _, ok := client.CurrentVersion(err)
	f, told := errors.AsType[*exit.Error](err)
	if !ok || !told {
		return err
	}
	f.Details = struct {
		Version uint64 `json:"version"`
	}{version}
	f.Do = fmt.Sprintf("look at the record at offset %d, and decide again with --if-version %d", version-1, version)
	if version == 0 {
		f.Do = "the key is absent: decide again with --if-version 0"
	}
	return f
}

// reachedByAck says in words how safe the record is.
func reachedByAck(ack client.Ack) string {
	s := " ("
	if ack.Duplicate {
		s += "stored before, "
	}
	s += fmt.Sprintf("generation %d, on %s", ack.Generation, count(ack.Replicas, "node"))
	if ack.Flushed {
		return s + ", flushed)"
	}
	return s + ", not flushed yet)"
}

// ackView is an acknowledged record in JSON.
type ackView struct {
	Line       uint64    `json:"line,omitempty"`
	Shard      uint32    `json:"shard"`
	Offset     uint64    `json:"offset"`
	Version    uint64    `json:"version"`
	Generation uint64    `json:"generation"`
	AppendTime time.Time `json:"append_time,omitzero"`
	Replicas   int       `json:"replicas"`
	Flushed    bool      `json:"flushed"`
	Committed  bool      `json:"committed"`
	Duplicate  bool      `json:"duplicate,omitempty"`
}

func viewAck(line uint64, ack client.Ack) ackView {
	return ackView{
		Line: line, Shard: ack.Shard, Offset: ack.Offset, Version: ack.Version(), Generation: ack.Generation,
		AppendTime: utc(ack.AppendTime), Replicas: ack.Replicas,
		Flushed: ack.Flushed, Committed: ack.Committed, Duplicate: ack.Duplicate,
	}
}

func (a *app) printAck(line uint64, ack client.Ack) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(viewAck(line, ack))
	case output.Raw:
		return a.Line("%d", ack.Offset)
	case output.Text: // for a person, below
	}
	return nil // a million lines of text would say nothing to anybody
}

// utc leaves a time that is not there alone.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// lineWriter is where `pub --lines` and `push --lines` send their records, and what they say of it.
type lineWriter struct {
	preset, name string
	things       string // what the records are called
	send         func(context.Context, client.Record) (wait func(context.Context) (client.Ack, error))
	acked        func(line uint64, ack client.Ack) error
}

func (a *app) pubLines(ctx context.Context, r *recipe, w *lineWriter) error {
	var acked atomic.Uint64
	began := time.Now()
	stop := a.Progress(func() string {
		return fmt.Sprintf("%d %s acknowledged, %v", acked.Load(), w.things, time.Since(began).Round(time.Second))
	})
	defer stop()
	_, err := lines.Publish(ctx, a.Streams.In, &acked, lines.Config[client.Ack]{
		Send: func(ctx context.Context, line []byte) (func(context.Context) (client.Ack, error), error) {
			rec, err := r.record(line)
			if err != nil {
				return nil, err
			}
			return w.send(ctx, rec), nil
		},
		Acked:   w.acked,
		MaxLine: batch.MaxRecord, Window: linesInFlight, Grace: answerGrace,
	})
	stop()
	if err != nil {
		return linesFailure(err, w.preset, w.name)
	}
	a.Note("%d %s are in, in %v", acked.Load(), w.things, time.Since(began).Round(time.Millisecond))
	return nil
}

// lookAgain says what to do about lines of which nobody knows whether they are in.
var lookAgain = map[string]string{
	control.PresetStream: "look for the unknown lines with `margay sub STREAM --from earliest --end` before you send them again",
	control.PresetCache:  "send the lines again from the first unknown one: a key that is put twice has the same value",
	control.PresetQueue:  "look for the unknown lines with `margay queue find QUEUE` before you send them again: what is sent twice is done twice",
}

// linesFailure says which lines are in: without that a script can only start over and store them twice.
func linesFailure(err error, preset, name string) error {
	stopped, ok := errors.AsType[*lines.Error](err)
	if !ok {
		return err
	}
	f := &exit.Error{Err: err, Data: stopped.Fates.Meaning()}
	f.Details = struct {
		Line uint64 `json:"line,omitempty"`
		lines.Fates
	}{stopped.Line, stopped.Fates}
	if errors.Is(err, context.Canceled) && stopped.Line == 0 {
		f.Err, f.Code = errors.New("stopped before the end of the input"), exit.Unknown
		f.Do = "send the lines after these to go on"
	}
	if errors.Is(err, code.NotFound) {
		f.Do = createFirst(preset, name)
	}
	if len(stopped.Fates.Unknown) > 0 {
		f.Do = lookAgain[preset]
	}
	return f
}
