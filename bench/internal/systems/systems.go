// SPDX-License-Identifier: Apache-2.0

// Package systems knows how each system of a comparison is started and driven: Margay, its peers, the bare prototype and the
// limits of the machine; it builds command lines, and neither runs nor judges anything.
package systems

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"margay.dev/bench/internal/child"
)

// Binaries is the directory of what was built.
type Binaries string

func (b Binaries) path(name string) string { return filepath.Join(string(b), name) }

// Job is one measurement: a server, if it needs one, and what drives it.
type Job struct {
	// Serve starts the server on a directory of its own; nil for none.
	Serve func(dir string) child.Command
	// Drive is run once the server says that it is ready (nil without one), and prints JSON.
	Drive func(dir string, s *child.Server) child.Command
	// Node: the server is a Margay node, with metrics to read.
	Node bool
}

// Load is what a driver is told, as the flags that all of them have.
type Load struct {
	Workload                             string
	Clients, InFlight, Size, Shards      int
	Subscribers, Connections             int
	Keys, Watchers                       int
	Consumers, MaxInFlight               int
	AckEvery                             int  // messages that one acknowledgement is for, of a peer that can; 0 for its default
	Ordered                              bool // messages of a key one after the other
	Share                                int  // connections that all clients share; 0 for one each
	Watch                                string
	Rate                                 float64
	Messages                             int64
	Duration, Warmup                     string
	Place                                string
	Transport, Fsync, Storage, Mode, Via string
	TLS                                  bool
}

// replay and work are the workloads that take a number of messages that were published before, and are over then.
const replay, work = "sub", "work"

// drive is how every driver but Margay's own command takes it.
func (l Load) drive() []string {
	return append([]string{"drive", "--workload", l.Workload}, l.flags()...)
}

func (l Load) flags() []string {
	var f []string
	number := func(name string, n int64) {
		if n > 0 {
			f = append(f, name, strconv.FormatInt(n, 10))
		}
	}
	word := func(name, v string) {
		if v != "" {
			f = append(f, name, v)
		}
	}
	number("--clients", int64(l.Clients))
	number("--in-flight", int64(l.InFlight))
	number("--size", int64(l.Size))
	number("--shards", int64(l.Shards))
	number("--subscribers", int64(l.Subscribers))
	number("--connections", int64(l.Connections))
	number("--keys", int64(l.Keys))
	number("--watchers", int64(l.Watchers))
	word("--watch", l.Watch)
	if l.Rate > 0 {
		word("--rate", strconv.FormatFloat(l.Rate, 'f', -1, 64))
	}
	number("--messages", l.Messages)
	if l.Messages == 0 {
		word("--duration", l.Duration)
	}
	number("--consumers", int64(l.Consumers))
	number("--max-in-flight", int64(l.MaxInFlight))
	if l.Ordered {
		f = append(f, "--ordered")
	}
	if l.Workload != replay && l.Workload != work {
		word("--warmup", l.Warmup)
	}
	return f
}

func pid(s *child.Server) string { return strconv.Itoa(s.PID) }

// Margay is a node of its own, with a fresh home.
func (b Binaries) Margay(l Load) Job {
	data := func(dir string) string { return filepath.Join(dir, "data") }
	return Job{
		Node: true,
		Serve: func(dir string) child.Command {
			return child.Command{
				Argv: []string{
					b.path("margay"), "serve", "--data", data(dir), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--output", "json",
				},
				Env: []string{
					"HOME=" + dir, "XDG_CONFIG_HOME=" + filepath.Join(dir, "config"), "XDG_DATA_HOME=" + filepath.Join(dir, "share"),
				},
			}
		},
		Drive: func(dir string, s *child.Server) child.Command {
			argv := append([]string{b.path("margay"), "bench", l.Workload}, l.flags()...)
			argv = append(argv, "--server", "context", "--context", filepath.Join(data(dir), "context.yaml"), "--server-pid", pid(s))
			argv = append(argv, "--transport", l.Transport, "--json")
			if l.Share > 0 {
				argv = append(argv, "--connections", strconv.Itoa(l.Share))
			}
			if l.Fsync != "" {
				argv = append(argv, "--fsync", l.Fsync)
			}
			if l.Storage != "" {
				argv = append(argv, "--storage", l.Storage)
			}
			return child.Command{Argv: argv}
		},
	}
}

// Peer is one of the programs in bench/peers, which all take the same arguments.
func (b Binaries) Peer(name string, l Load) Job {
	return Job{
		Serve: func(dir string) child.Command {
			argv := []string{b.path(name), "serve", "--dir", filepath.Join(dir, "data"), "--addr", "127.0.0.1:0"}
			if l.Mode != "" {
				argv = append(argv, "--mode", l.Mode)
			}
			if l.TLS {
				argv = append(argv, "--tls")
			}
			return child.Command{Argv: argv}
		},
		Drive: func(_ string, s *child.Server) child.Command {
			argv := append([]string{b.path(name)}, l.drive()...)
			argv = append(argv, "--addr", s.Addr, "--pid", pid(s))
			if l.Via != "" {
				argv = append(argv, "--via", l.Via)
			}
			if l.Share > 0 {
				argv = append(argv, "--share", strconv.Itoa(l.Share))
			}
			if l.AckEvery > 0 {
				argv = append(argv, "--ack-every", strconv.Itoa(l.AckEvery))
			}
			return child.Command{Argv: argv}
		},
	}
}

// Bare is the bare publish prototype.
func (b Binaries) Bare(l Load) Job {
	return Job{
		Serve: func(dir string) child.Command {
			argv := []string{b.path("bare"), "serve", "--transport", l.Transport, "--dir", filepath.Join(dir, "data")}
			if l.Fsync == "never" {
				argv = append(argv, "--no-flush")
			}
			return child.Command{Argv: argv}
		},
		Drive: func(_ string, s *child.Server) child.Command {
			argv := append([]string{b.path("bare")}, l.drive()...)
			return child.Command{Argv: append(argv, "--addr", s.Addr, "--pid", pid(s), "--transport", l.Transport)}
		},
	}
}

// Raw is a transport with nothing on it; args are those of `limits drive`.
func (b Binaries) Raw(transport string, args ...string) Job {
	return Job{
		Serve: func(string) child.Command {
			return child.Command{Argv: []string{b.path("limits"), "serve", "--transport", transport}}
		},
		Drive: func(_ string, s *child.Server) child.Command {
			argv := []string{b.path("limits"), "drive", "--transport", transport, "--addr", s.Addr, "--pid", pid(s)}
			return child.Command{Argv: append(argv, args...)}
		},
	}
}

// Disk is the file system with nothing on it; args are those of `limits disk`.
func (b Binaries) Disk(args ...string) Job {
	return Job{Drive: func(dir string, _ *child.Server) child.Command {
		return child.Command{Argv: append([]string{b.path("limits"), "disk", "--dir", dir}, args...)}
	}}
}

// Idle is a Margay node whose memory is asked for; args are those of the driver.
func (b Binaries) Idle(args ...string) Job {
	j := b.Margay(Load{})
	j.Drive = func(dir string, s *child.Server) child.Command {
		argv := append([]string{b.path("driver")}, args...)
		return child.Command{Argv: append(argv, "--context", filepath.Join(dir, "data", "context.yaml"), "--pid", pid(s))}
	}
	return j
}

// Storage is Margay's log with no broker, in turns with bare writes that flush alike; args are those of `margay bench storage`.
func (b Binaries) Storage(args ...string) Job {
	return Job{Drive: func(dir string, _ *child.Server) child.Command {
		return child.Command{Argv: append([]string{b.path("margay"), "bench", "storage", "--json", "--dir", dir}, args...)}
	}}
}

// Keys is a cache of many keys, whose node the program starts, stops and kills itself; args are its own.
func (b Binaries) Keys(args ...string) Job {
	return Job{Drive: func(dir string, _ *child.Server) child.Command {
		return child.Command{Argv: append([]string{b.path("keys"), "-data", dir, "-binaries", string(b)}, args...)}
	}}
}

// Queues are queues whose node the program starts, stops and kills itself; args are its own.
func (b Binaries) Queues(args ...string) Job {
	return Job{Drive: func(dir string, _ *child.Server) child.Command {
		return child.Command{Argv: append([]string{b.path("queues"), "-data", dir, "-binaries", string(b)}, args...)}
	}}
}

// Alone is the driver without a node.
func (b Binaries) Alone(args ...string) Job {
	return Job{Drive: func(string, *child.Server) child.Command {
		return child.Command{Argv: append([]string{b.path("driver")}, args...)}
	}}
}

// What differs from run to run: the port that a server was given, and its process.
var (
	address = regexp.MustCompile(`127\.0\.0\.1:[1-9][0-9]*`)
	process = regexp.MustCompile(`(-pid) [0-9]+`)
)

// Readable is a command without what only means something on the machine that ran it.
func Readable(c child.Command, root, binaries, dir string) string {
	s := c.String()
	for _, r := range [][2]string{{dir, "DIR"}, {binaries, "bin/bench"}, {root, "."}} {
		if r[0] != "" {
			s = strings.ReplaceAll(s, r[0], r[1])
		}
	}
	return process.ReplaceAllString(address.ReplaceAllString(s, "ADDR"), "$1 PID")
}
