// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"flag"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"margay.dev/cluster/load"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

const (
	serverSpawn   = "spawn"
	serverContext = "context"

	transportQUIC = "quic"
	transportTLS  = "tls"
)

// benchFlags are those of the workloads that need a node.
type benchFlags struct {
	spec      *load.Spec
	server    string
	serverPID int
	dir       string
	profile   string
	transport string
	fsync     string
	storage   string
	ack       string
	json      bool

	connections int // of publishers
}

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure: how many, how fast, and at what cost",
		Long: `Measure a node, or the storage engine alone. Without being told where to go, each command starts a node
of its own in a temporary directory, uses a stream of its own, and leaves nothing behind.

Latencies are percentiles. At a fixed --rate they count from when a message should have been sent, so
that a stall shows as what it is for those who wait; as fast as possible they count from when it was sent.`,
		Example: `  margay bench pub
  margay bench latency --rate 5000 --clients 10`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		a.benchLoadCommand(load.Pub, "Publish as fast as the windows allow", `Publish for a while, each client with so many messages on their way, and count acknowledgements. By default
an acknowledgement means that the record is on the disk.`,
			`  margay bench pub --clients 64 --in-flight 1
  margay bench pub --size 1024 --fsync never --duration 30s`),
		a.benchLoadCommand(load.Latency, "Publish at a fixed rate, and time the acknowledgements", `Publish on a schedule that does not wait for the system, and time each message from when the schedule had
it to its acknowledgement. What was not sent in time counts with the time that it had waited.`,
			`  margay bench latency --rate 20000
  margay bench latency --rate 1000 --clients 100 --shards 8`),
		a.benchLoadCommand(load.Sub, "Replay from the beginning", `Publish messages, unless they are there (--prepared), and read them from the oldest on.`,
			`  margay bench sub --size 4096
  margay bench sub orders --prepared --messages 100000 --server context`),
		a.benchLoadCommand(load.Fanout, "Publish to many subscribers at once", `Publish while subscribers receive, and count deliveries and time them from the sending. A message is on its
way until all subscribers have it. With one subscriber it is the way through the system once.`,
			`  margay bench fanout --subscribers 100 --connections 10
  margay bench fanout --storage memory --size 4096`),
		a.benchLoadCommand(load.Put, "Put values of keys", `Put values of keys, each client with so many on their way, and count acknowledgements; with --rate, time them
from when the schedule had the put. --watchers are slow ones, to see whether they hold it up.`,
			`  margay bench put --clients 50 --in-flight 1
  margay bench put --watchers 500 --connections 10`),
		a.benchLoadCommand(load.Get, "Get values of keys", `Put all keys once, and get them in a random order: no answer is older than its question.`,
			`  margay bench get --keys 100000
  margay bench get --clients 50 --in-flight 1`),
		a.benchLoadCommand(load.Watch, "Put to many watchers at once", `Put while watchers watch one key, or the prefix of all keys, and count deliveries: of every put to every
watcher, or there is no result. A put is on its way until all watchers have it, and that is what is timed.`,
			`  margay bench watch --watchers 500 --connections 10
  margay bench watch --watch prefix --watchers 100 --rate 500`),
		a.benchLoadCommand(load.Work, "Work messages off", `Push messages, and have consumers work them off: count settlements, each of which is on the disk when it counts.
Every consumer acknowledges each message, and does not wait for the answer before it takes the next.`,
			`  margay bench work
  margay bench work --consumers 200 --connections 10 --keys 100000 --ordered`),
		a.benchLoadCommand(load.Handle, "Push to handlers", `Push while consumers handle, and time each message from the push until its handler has it. A message is on its
way until its settlement is on the disk; by default there is one.`,
			`  margay bench handle
  margay bench handle --rate 1000 --in-flight 100`),
		a.benchStorageCommand(),
	)
	return cmd
}

func (a *app) benchLoadCommand(w load.Workload, short, long, example string) *cobra.Command {
	var f benchFlags
	preset := benchPreset(w)
	what := strings.ToUpper(preset)
	cmd := &cobra.Command{
		Use:   string(w) + " [" + what + "]",
		Short: short,
		Long: long + `

A ` + what + ` that is named must be there; it is used as it is, and stays. Without one, a ` + preset + ` is made for the
run and deleted behind it. With a ` + what + `, --context or --address the node is the one that other commands
would use; otherwise one is started for the run. --server decides it explicitly.`,
		Example:           example,
		Args:              cobra.MaximumNArgs(1),
		Annotations:       writes(),
		ValidArgsFunction: a.completeLogs(collection{preset: preset}),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.useJSON(f.json)
			if err := f.check(args, cmd.Flags().Changed); err != nil {
				return err
			}
			return a.benchLoad(cmd.Context(), &f, args)
		},
	}
	flags := cmd.Flags()
	shared := flag.NewFlagSet("", flag.ContinueOnError)
	f.spec = load.Flags(shared, w)
	flags.AddGoFlagSet(shared)
	switch w {
	case load.Pub, load.Latency, load.Get:
		flags.IntVar(&f.connections, "connections", 0, "connections that the clients share, as those of one program do (default: each has its own)")
	default: // those who receive share them
	}
	flags.StringVar(&f.server, "server", "", "which node: spawn (one for the run) or context (that of --context or --address)")
	flags.IntVar(&f.serverPID, "server-pid", 0, "with --server context: the node's process, if it runs on this machine, to account for its CPU and memory")
	flags.StringVar(&f.dir, "dir", "", "with --server spawn: where its data goes for the run (default: the system's temporary directory)")
	flags.StringVar(&f.transport, "transport", "", "quic, or tls for TLS over TCP (default: as the address says, which is quic for a node of its own)")
	flags.StringVar(&f.fsync, "fsync", "", "of the "+preset+" that is made: always, interval or never (default always)")
	if !w.HasQueue() { // which is on the disk
		flags.StringVar(&f.storage, "storage", "", "of the "+preset+" that is made: disk or memory (default disk)")
		complete(cmd, "storage", control.StorageDisk, control.StorageMemory)
	}
	if !w.HasKeys() && !w.HasQueue() { // they are written by their own rule
		flags.StringVar(&f.ack, "ack", "", "what a publish waits for: none, leader or quorum (the stream's rule when not given)")
		complete(cmd, "ack", control.AckNone, control.AckLeader, control.AckQuorum)
	}
	flags.StringVar(&f.profile, "profile", "", "directory for profiles of the node under the load: cpu, allocs, block and mutex, each a .pprof file")
	flags.BoolVar(&f.json, "json", false, "the same as --output json")
	complete(cmd, "server", serverSpawn, serverContext)
	complete(cmd, "transport", transportQUIC, transportTLS)
	complete(cmd, "fsync", control.FsyncAlways, control.FsyncInterval, control.FsyncNever)
	return cmd
}

// benchPreset is what a workload is done to.
func benchPreset(w load.Workload) string {
	switch {
	case w.HasKeys():
		return control.PresetCache
	case w.HasQueue():
		return control.PresetQueue
	}
	return control.PresetStream
}

// useJSON switches to JSON for a command that has a flag of its own for it.
func (a *app) useJSON(yes bool) {
	if yes && a.Format() != output.JSON {
		a.Printer = output.NewPrinter(output.JSON, a.Streams) // nothing was written to the one before
	}
}

// check refuses what makes no sense, and decides which node it is.
func (f *benchFlags) check(args []string, given func(string) bool) error {
	for _, one := range []struct {
		name, value string
		want        []string
	}{
		{"server", f.server, []string{serverSpawn, serverContext}},
		{"transport", f.transport, []string{transportQUIC, transportTLS}},
		{"fsync", f.fsync, []string{control.FsyncAlways, control.FsyncInterval, control.FsyncNever}},
		{"storage", f.storage, []string{control.StorageDisk, control.StorageMemory}},
		{"ack", f.ack, []string{control.AckNone, control.AckLeader, control.AckQuorum}},
	} {
		if (one.value != "" || given(one.name)) && !slices.Contains(one.want, one.value) {
			return exit.Misuse("--%s %q: want %s", one.name, one.value, strings.Join(one.want, " or "))
		}
	}
	for _, name := range []string{"clients", "in-flight", "size", "messages", "subscribers", "watchers", "keys", "connections", "shards", "consumers", "max-in-flight"} {
		if given(name) && f.value(name) == 0 {
			return exit.Misuse("--%s 0: want at least 1", name)
		}
	}
	if f.spec.Workload == load.Latency && f.spec.Rate == 0 {
		return exit.Misuse("--rate 0: latency is timed at a fixed rate; `margay bench pub` goes as fast as possible")
	}
	f.spec.Fill()
	if err := f.spec.Validate(); err != nil {
		return exit.Misuse("%w", err)
	}
	switch {
	case f.server == serverSpawn && len(args) > 0:
		return exit.Misuse("--server spawn starts a node with nothing on it: leave out %s", args[0])
	case f.server == "" && (len(args) > 0 || given("context") || given("address")):
		f.server = serverContext
	case f.server == "":
		f.server = serverSpawn
	}
	if len(args) > 0 {
		for _, name := range []string{"shards", "fsync", "storage"} {
			if given(name) {
				return exit.Misuse("--%s is for a %s that is made for the run: %s is used as it is", name, benchPreset(f.spec.Workload), args[0])
			}
		}
	}
	return f.checkServer(args)
}

func (f *benchFlags) checkServer(args []string) error {
	switch {
	case f.connections < 0 || f.connections > f.spec.Clients && f.connections > 0:
		return exit.Misuse("--connections %d: want 1 to --clients, which is %d", f.connections, f.spec.Clients)
	case f.serverPID < 0:
		return exit.Misuse("--server-pid %d: want a process", f.serverPID)
	case f.server == serverSpawn && f.serverPID > 0:
		return exit.Misuse("--server-pid: the process of a node that is started for the run is known")
	case f.server == serverContext && f.dir != "":
		return exit.Misuse("--dir is for a node that is started for the run")
	case f.spec.Prepared && len(args) == 0:
		return exit.Misuse("--prepared: name the STREAM that holds the messages")
	case f.spec.Workload == load.Sub && f.storage == control.StorageMemory:
		return exit.Misuse("--storage memory keeps the newest messages only: there is no beginning to replay from")
	}
	return nil
}

// value is a number of the spec by the name of its flag.
func (f *benchFlags) value(name string) int64 {
	s := f.spec
	switch name {
	case "clients":
		return int64(s.Clients)
	case "in-flight":
		return int64(s.InFlight)
	case "size":
		return int64(s.Size)
	case "messages":
		return s.Messages
	case "subscribers":
		return int64(s.Subscribers)
	case "watchers":
		return int64(s.Watchers)
	case "keys":
		return int64(s.Keys)
	case "consumers":
		return int64(s.Consumers)
	case "max-in-flight":
		return int64(s.MaxInFlight)
	case "connections":
		return int64(s.Connections + f.connections) // one of them, by the workload
	}
	return int64(s.Shards)
}
