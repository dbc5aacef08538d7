// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"margay.dev/bench/peers/peer"
)

// modeDefault is all there is: a quorum queue flushes its log before it answers.
const modeDefault = "default"

const startTimeout = 50 * time.Second

// scripts are where packages put the script that starts the server as whoever calls it, in directories that it is told. The
// one in the path may be another, which changes to a user and to directories of the system's.
var scripts = []string{"/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server"}

func find() (script, names string, err error) {
	for _, script = range scripts {
		if _, err = os.Stat(script); err == nil {
			break
		}
	}
	if err == nil {
		names, err = exec.LookPath("epmd")
	}
	if err != nil {
		return "", "", fmt.Errorf("%w: no rabbitmq-server: apt-get install rabbitmq-server", peer.ErrUnavailable)
	}
	return script, names, nil
}

// server is the server and the program that Erlang keeps names of nodes in. Left to itself the server would start one that
// stays when it ends.
type server struct {
	home                 string
	addr, ports, distrib string // where it listens; the port of the names; the port of the node
	names, node          *exec.Cmd
	namesEnd, end        <-chan struct{}
}

func serve(ctx context.Context, o peer.ServeOptions) (_ *peer.Server, err error) {
	script, names, err := find()
	if err != nil {
		return nil, err
	}
	s := &server{home: o.Dir}
	for _, at := range []*string{&s.addr, &s.ports, &s.distrib} {
		want := "127.0.0.1:0"
		if at == &s.addr {
			want = o.Addr
		}
		if *at, err = peer.FreePort(ctx, want); err != nil {
			return nil, err
		}
	}
	if err := s.configure(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w\n%s", err, s.said()), s.stop())
		}
	}()
	if err = s.start(ctx, script, names); err != nil {
		return nil, err
	}
	if err = s.answers(ctx); err != nil {
		return nil, err
	}
	return &peer.Server{Addr: s.addr, PID: s.node.Process.Pid, Ended: s.end, Stop: s.stop}, nil
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr) // FreePort made it
	return p
}

func (s *server) path(name string) string { return filepath.Join(s.home, name) }

func (s *server) configure() error {
	conf := strings.Join([]string{
		"listeners.tcp.1 = " + s.addr,
		"log.console = false",
		"log.file.level = warning",
		"disk_free_limit.absolute = 100MB", // its default is more than some test machines have, and stops publishers
		"",
	}, "\n")
	return errors.Join(
		os.WriteFile(s.path("rabbitmq.conf"), []byte(conf), 0o600),
		os.WriteFile(s.path("enabled_plugins"), []byte("[].\n"), 0o600),
	)
}

// environment is the server's: all it would take from the system's directories it is given here.
func (s *server) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.home,
		"RUNNING_UNDER_SYSTEMD=true", // the script becomes the server, and starts no other process
		"RABBITMQ_NODENAME=bench@localhost", "RABBITMQ_DIST_PORT=" + port(s.distrib),
		"ERL_EPMD_PORT=" + port(s.ports), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONFIG_FILE=" + s.path("rabbitmq.conf"), "RABBITMQ_CONF_ENV_FILE=" + s.path("none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.path("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + s.path("data"), "RABBITMQ_LOG_BASE=" + s.path("log"),
	}
}

func (s *server) start(ctx context.Context, script, names string) (err error) {
	s.names = exec.CommandContext(context.WithoutCancel(ctx), names, "-port", port(s.ports), "-address", "127.0.0.1")
	s.node = exec.CommandContext(context.WithoutCancel(ctx), script)
	s.node.Dir = s.home
	out, err := os.Create(s.path("output"))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own
	for _, c := range []struct {
		cmd *exec.Cmd
		end *<-chan struct{}
	}{{s.names, &s.namesEnd}, {s.node, &s.end}} {
		c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = s.environment(), out, out
		if *c.end, err = peer.Start(c.cmd); err != nil {
			*c.end = nil
			return fmt.Errorf("start %s: %w", c.cmd.Path, err)
		}
	}
	return nil
}

// answers waits until the server answers.
func (s *server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := amqp.DialConfig(url(s.addr), amqp.Config{Dial: amqp.DefaultDial(dialWithin)})
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-s.end:
			return errors.New("the server ended while it started")
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s after %v: %w", s.addr, startTimeout, err)
		}
	}
}

// stop ends both at once: nobody will read what an orderly end of some seconds would write.
func (s *server) stop() error {
	for _, c := range []struct {
		cmd *exec.Cmd
		end <-chan struct{}
	}{{s.node, s.end}, {s.names, s.namesEnd}} {
		if c.end != nil {
			_ = c.cmd.Process.Kill() // it may have ended
			<-c.end
		}
	}
	return nil
}

// said is the end of what was printed and logged.
func (s *server) said() string {
	var all strings.Builder
	for _, name := range []string{"output", "log/bench@localhost.log"} {
		text, _ := os.ReadFile(s.path(name))
		all.Write(text[max(0, len(text)-2000):])
	}
	return all.String()
}
