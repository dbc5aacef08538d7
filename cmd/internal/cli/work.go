// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/cmd/internal/work"
	"margay.dev/wire"
)

const (
	// maxWorkers bounds the commands that run at a time.
	maxWorkers = 1024
	// stopSlack is how much longer the end of `work` may take than that of its commands.
	stopSlack = 5 * time.Second
)

type workFlags struct {
	group       string
	name        string
	concurrency int
	count       uint64
	within      duration
	drain       duration
}

func (a *app) workCommand() *cobra.Command {
	f := workFlags{drain: duration(30 * time.Second)}
	cmd := &cobra.Command{
		Use:   "work QUEUE --group GROUP -- COMMAND [ARG]...",
		Short: "Run a command for each message of a queue",
		Long: `Run COMMAND for each message of a group, with the message's value on standard input, and settle the message by how
the command ends:

  exit 0         done: the message never comes again
  exit 65        rejected (EX_DATAERR): the message is wrong, and is a dead letter at once
  anything else  failed, also a signal and exit 75 (EX_TEMPFAIL): it comes again by the group's backoff, and is a dead
                 letter after the group's last attempt

The reason that is kept with it is how the command ended, and the last line of its standard error.

The command's environment has MARGAY_QUEUE, MARGAY_GROUP, MARGAY_ID (SHARD/OFFSET), MARGAY_SHARD, MARGAY_OFFSET,
MARGAY_ATTEMPT (from 1), MARGAY_APPEND_TIME, MARGAY_DEDUP_ID (the same each time the message comes, for what is
published in consequence), MARGAY_KEY if there is one, MARGAY_HEADERS (as the JSON of 'margay consume' has them) and
MARGAY_HEADER_NAME for each. What is no text is base64, and NAME_ENCODING says so.

While the command runs the message stays its own, however long it takes, or for --run-timeout. Is it lost all the same,
as after a long separation from the broker, the command is ended, since another may have the message. On an interrupt
no more messages are taken, and commands have --drain to end; what has not ended then is given back, and a second signal
ends at once. When the broker restarts, working goes on by itself, and standard error says so.

Standard output and standard error are the command's. With --output json standard output has one object for each
message instead, with what became of it, and what the command prints goes to standard error.`,
		Example: `  margay work emails --group mailers -- ./send-mail
  margay work emails --group mailers --concurrency 8 --run-timeout 1m -- sh -c 'curl -fsS -d @- https://example.com/hook'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) < 2 || at >= 0 && at != 1 {
				return exit.Misuse("want QUEUE, and behind -- the command to run: margay work QUEUE --group GROUP -- COMMAND")
			}
			return nil
		},
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(queues()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.count == 0 && cmd.Flags().Changed("count") {
				return exit.Misuse("--count 0: want at least one message")
			}
			if f.concurrency < 1 || f.concurrency > maxWorkers {
				return exit.Misuse("--concurrency %d: want 1 to %d", f.concurrency, maxWorkers)
			}
			if err := checkGroupName(f.group); err != nil {
				return err
			}
			return a.work(cmd.Context(), args[0], args[1:], &f)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	flags.StringVar(&f.group, "group", "", "the group of consumers to be one of; made when it is not there")
	flags.StringVar(&f.name, "name", "", "what lists call this worker (default: this machine and process)")
	flags.IntVar(&f.concurrency, "concurrency", 1, "run this many commands at a time")
	flags.Uint64Var(&f.count, "count", 0, "stop after this many messages")
	flags.Var(&f.within, "run-timeout", "end a command that runs longer; it failed")
	flags.Var(&f.drain, "drain", "how long commands that run may take to end after an interrupt")
	return cmd
}

func (a *app) work(ctx context.Context, queue string, argv []string, f *workFlags) error {
	c := &work.Command{Argv: argv, Within: time.Duration(f.within), Stdout: shared(a.Streams.Out), Stderr: shared(a.Streams.Err)}
	if a.Environ != nil {
		c.Env = work.Without(a.Environ())
	}
	if a.Format() == output.JSON {
		c.Stdout = c.Stderr
	}
	if err := c.Check(); err != nil {
		return exit.Misuse("no message was taken: %w", err)
	}
	q, err := a.openQueue(ctx, queue)
	if err != nil {
		return err
	}
	defer q.c.Close()
	g, err := a.join(ctx, q, f.group, f.name, client.Concurrency(f.concurrency), client.MaxInFlight(ahead(f)))
	if err != nil {
		return err
	}
	defer g.Close()
	w := &worker{a: a, q: q, g: g, f: f, command: c}
	return w.run(ctx)
}

// ahead is how many messages a worker has: those that it works on and as many again, so that none waits for the broker. With a
// count there is no more than that.
func ahead(f *workFlags) int {
	n := min(2*f.concurrency, wire.MaxInFlight)
	if f.count > 0 && f.count < uint64(n) {
		n = int(f.count)
	}
	return n
}

// thisProcess names a consumer that has no other name: lists put those of one name together.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	pid := "/" + strconv.Itoa(os.Getpid())
	host = strings.ToValidUTF8(host, "")
	return strings.ToValidUTF8(host[:min(len(host), wire.MaxName-len(pid))], "") + pid
}

// shared is an output that several commands write to at once; a file can be as it is.
func shared(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok {
		return w
	}
	return work.Shared(w)
}
