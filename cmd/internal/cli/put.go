// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

type putFlags struct {
	ttl       duration
	headers   []string
	ifAbsent  bool
	ifVersion uint64
	lines     bool
}

func (a *app) putCommand() *cobra.Command {
	var f putFlags
	cmd := &cobra.Command{
		Use:   "put CACHE KEY [VALUE]",
		Short: "Give a key of a cache a value, or many keys with --lines",
		Long: `Give KEY the value VALUE, or standard input as it is. What is acknowledged is as durable as the cache is, and every
read that begins afterwards sees it.

Each write of a key has a version, which rises. --if-absent and --if-version decide in the order of the cache's writes:
of any number who expect the same version one gets it, and the others exit with 4 and are told the version there is.

--ttl ends the value's life: the key is absent from then on, and who watches is told once that it expired. Without it the
value lives as long as the cache's setting says; --ttl 0s is for good. A put without --ttl ends an earlier one's.

--lines puts a key for each line of standard input: KEY, a tab, and VALUE, as 'margay cache keys --values -o raw' prints
them. A line that fails stops the command, and it says which lines are certainly in, certainly not in, and unknown.`,
		Example: `  margay put sessions user/1 token --ttl 30m
  margay put flags checkout/new on --if-version 7
  margay put flags --lines < flags.tsv`,
		Args:              cobra.RangeArgs(1, 3),
		Annotations:       writes(),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := f.options(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			if f.lines {
				return a.putLines(cmd, args, options)
			}
			return a.put(cmd, args, options)
		},
	}
	flags := cmd.Flags()
	flags.Var(&f.ttl, "ttl", "how long the value lives; for good when 0s")
	flags.StringArrayVar(&f.headers, "header", nil, "header beside the value as NAME=VALUE; may be repeated")
	flags.BoolVar(&f.ifAbsent, "if-absent", false, "only if the key is not there")
	flags.Uint64Var(&f.ifVersion, "if-version", 0, "only if the key has this version (0: is not there)")
	flags.BoolVar(&f.lines, "lines", false, "put a key for each line of standard input, KEY<TAB>VALUE")
	cmd.SetFlagErrorFunc(dashed("a value that begins with a dash", "margay put CACHE KEY -- -2"))
	return cmd
}

func (f *putFlags) options(given func(flag string) bool) ([]client.PutOption, error) {
	var options []client.PutOption
	switch {
	case f.ifAbsent && given("if-version"):
		return nil, exit.Misuse("--if-absent and --if-version: give one of them")
	case f.lines && (f.ifAbsent || given("if-version")):
		return nil, exit.Misuse("--if-absent and --if-version are about one key: do without --lines")
	case f.ifAbsent:
		options = append(options, client.IfAbsent())
	case given("if-version"):
		options = append(options, client.IfVersion(f.ifVersion))
	}
	if given("ttl") {
		options = append(options, life(f.ttl))
	}
	for _, h := range f.headers {
		name, value, err := arg.Header(h)
		if err != nil {
			return nil, exit.Misuse("--header: %w", err)
		}
		options = append(options, client.Headers(client.Header{Key: name, Value: []byte(value)}))
	}
	return options, nil
}

// life is what --ttl means: 0s is for good.
func life(ttl duration) client.LifeOption {
	if ttl == 0 {
		return client.NoTTL()
	}
	return client.TTL(time.Duration(ttl))
}

func (a *app) put(cmd *cobra.Command, args []string, options []client.PutOption) error {
	if len(args) == 1 {
		return exit.Misuse("no key: give KEY, or --lines")
	}
	if len(args) == 2 && a.Streams.InTerminal {
		return exit.Misuse("no value: give VALUE, or pipe one in")
	}
	value, err := a.oneValue(args[1:])
	if err != nil {
		return err
	}
	key := args[1]
	return a.cacheWithin(cmd, args[0], func(ctx context.Context, k *keyed) error {
		ack, err := k.PutAsync(ctx, key, value, options...).Wait(ctx)
		if err != nil {
			return k.aboutKey(ctx, err, key)
		}
		if a.Format() == output.Text {
			return a.Line("%s %s version %d%s", a.Bold(k.name), a.Bold(output.Show([]byte(key))), ack.Version(), a.Dim(reachedByAck(ack)))
		}
		return a.printPut(0, key, ack)
	})
}

// putView is an acknowledged put in JSON.
type putView struct {
	Key         string `json:"key"`
	KeyEncoding string `json:"key_encoding,omitempty"`
	ackView
}

// printPut prints nothing for a person.
func (a *app) printPut(line uint64, key string, ack client.Ack) error {
	switch a.Format() {
	case output.JSON:
		v := putView{ackView: viewAck(line, ack)}
		v.Key, v.KeyEncoding = encodeKey(key)
		return a.JSON(v)
	case output.Raw:
		return a.Line("%d", ack.Version())
	case output.Text: // a million lines would say nothing to anybody
	}
	return nil
}

// putAck is what a line came to.
type putAck struct {
	key string
	ack client.Ack
}

func (a *app) putLines(cmd *cobra.Command, args []string, options []client.PutOption) error {
	if len(args) > 1 {
		return exit.Misuse("KEY and --lines: give one of them")
	}
	var delivery []client.Option
	if cmd.Flags().Changed("timeout") { // a pipeline is better off riding out a restart
		delivery = append(delivery, client.WithDeliveryTimeout(min(a.global.timeout, client.MaxDeliveryTimeout)))
	}
	k, err := a.openCache(cmd.Context(), args[0], delivery...)
	if err != nil {
		return err
	}
	defer k.c.Close()
	var acked atomic.Uint64
	began := time.Now()
	stop := a.Progress(func() string {
		return fmt.Sprintf("%d keys acknowledged, %v", acked.Load(), time.Since(began).Round(time.Second))
	})
	defer stop()
	_, err = lines.Publish(cmd.Context(), a.Streams.In, &acked, lines.Config[putAck]{
		Send: func(ctx context.Context, line []byte) (func(context.Context) (putAck, error), error) {
			key, value, ok := bytes.Cut(line, []byte{'\t'})
			if !ok {
				return nil, code.New(code.BadRequest, "no tab: want KEY<TAB>VALUE")
			}
			future, name := k.PutAsync(ctx, string(key), value, options...), string(key)
			return func(ctx context.Context) (putAck, error) {
				ack, err := future.Wait(ctx)
				return putAck{name, ack}, err
			}, nil
		},
		Acked:   func(line uint64, p putAck) error { return a.printPut(line, p.key, p.ack) },
		MaxLine: batch.MaxRecord, Window: linesInFlight, Grace: answerGrace,
	})
	stop()
	if err != nil {
		return linesFailure(err, control.PresetCache, k.name)
	}
	a.Note("%d keys are in, in %v", acked.Load(), time.Since(began).Round(time.Millisecond))
	return nil
}

// oneValue is the second argument, or standard input as it is: no newline is taken away.
func (a *app) oneValue(args []string) ([]byte, error) {
	if len(args) == 2 {
		return []byte(args[1]), nil
	}
	value, err := io.ReadAll(io.LimitReader(a.Streams.In, batch.MaxRecord+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(value) > batch.MaxRecord {
		return nil, code.New(code.TooLarge, "standard input: more than %d bytes for one record", batch.MaxRecord)
	}
	return value, nil
}
