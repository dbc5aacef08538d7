// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"margay.dev/bench/peers/peer"
)

const (
	modeDefault = "default" // answers when the message is written to the file, which is flushed every two minutes
	modeAlways  = "always"  // sync_interval: always
)

// maxPending is how much the server keeps for a connection that does not read: enough that a run never loses a message to
// the limit, which is there to protect servers from strangers.
const maxPending = 4 << 30

func serve(_ context.Context, o peer.ServeOptions) (*peer.Server, error) {
	opts, err := options(o)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	s.Start()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.WaitForShutdown()
	}()
	stop := func() error {
		s.Shutdown()
		<-ended
		return nil
	}
	if !s.ReadyForConnections(30 * time.Second) {
		return nil, errors.Join(errors.New("not ready after 30 s"), stop())
	}
	return &peer.Server{Addr: address(s.Addr().String(), o), Ended: ended, Stop: stop}, nil
}

func options(o peer.ServeOptions) (*server.Options, error) {
	host, text, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", o.Addr, err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	opts := &server.Options{
		ServerName: "peer",
		Host:       host,
		Port:       port,
		NoLog:      true,
		NoSigs:     true, // peer handles them
		JetStream:  true,
		StoreDir:   o.Dir,
		SyncAlways: o.Mode == modeAlways,
		MaxPending: maxPending,
		// A machine that stands still for a while must not cost a connection.
		WriteDeadline: time.Minute,
		PingInterval:  5 * time.Minute,
		// One request a message: the queue must hold all that 64 publishers have under way.
		StreamMaxBufferedMsgs: 1 << 20,
		StreamMaxBufferedSize: 1 << 30,
	}
	if !o.TLS {
		return opts, nil
	}
	opts.TLS, opts.TLSTimeout = true, 30
	opts.TLSConfig, err = peer.ServerTLS(certFile(o))
	return opts, err
}

// address is what drive connects to; it names the certificate to trust.
func address(hostPort string, o peer.ServeOptions) string {
	if !o.TLS {
		return "nats://" + hostPort
	}
	u := url.URL{Scheme: "tls", Host: hostPort, RawQuery: url.Values{"ca": {certFile(o)}}.Encode()}
	return u.String()
}

func certFile(o peer.ServeOptions) string { return filepath.Join(o.Dir, "certificate.pem") }
