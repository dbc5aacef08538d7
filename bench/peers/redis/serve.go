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
	"strconv"
	"syscall"
	"time"

	"margay.dev/bench/peers/peer"
)

const (
	modeDefault = "default" // appendfsync everysec: answers when the command is written to the file
	modeAlways  = "always"  // appendfsync always: one flush for each turn of the loop, before its answers
	modeNo      = "no"      // appendfsync no: the system flushes when it likes
)

const startTimeout = 30 * time.Second

func serve(ctx context.Context, o peer.ServeOptions) (*peer.Server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: no redis-server: apt-get install redis-server", peer.ErrUnavailable)
	}
	addr, err := peer.FreePort(ctx, o.Addr)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	logFile := filepath.Join(o.Dir, "redis.log")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, arguments(o, host, port, logFile)...)
	ended, err := peer.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	stop := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		return nil
	}
	if err := answers(ctx, addr, ended); err != nil {
		text, _ := os.ReadFile(logFile)
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, text), stop())
	}
	return &peer.Server{Addr: addr, PID: cmd.Process.Pid, Ended: ended, Stop: stop}, nil
}

func arguments(o peer.ServeOptions, host, port, logFile string) []string {
	fsync := map[string]string{modeDefault: "everysec", modeAlways: "always", modeNo: "no"}[o.Mode]
	return []string{
		"--bind", host, "--port", port, "--protected-mode", "no",
		"--dir", o.Dir, "--logfile", logFile, "--daemonize", "no",
		"--appendonly", "yes", "--appendfsync", fsync,
		"--save", "", // no snapshots beside the log of commands
		"--auto-aof-rewrite-percentage", "0", // the log is not written anew in the middle of a run
		"--stream-node-max-bytes", "4096", "--stream-node-max-entries", "100", // the defaults: see the README
		"--io-threads", strconv.Itoa(ioThreads),
		"--maxclients", "10000", "--tcp-backlog", "511",
	}
}

// ioThreads is 1: on two cores more threads are slower, see the README.
const ioThreads = 1

// answers waits until the server answers.
func answers(ctx context.Context, addr string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := connect(ctx, addr)
		if err == nil {
			_, err = c.do("PING")
			err = errors.Join(err, c.Close())
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return errors.New("the server ended while it started")
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s after %v: %w", addr, startTimeout, err)
		}
	}
}
