// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net"
	"syscall"

	"margay.dev/wire/session"
)

// clientSockets are what clients reach the node by: two ports of one number.
type clientSockets struct {
	udp net.PacketConn
	tcp net.Listener // nil without TLS over TCP
}

// listenTries is how many free UDP ports are taken until one is free for TCP too.
const listenTries = 100

// listenForClients binds both ports. Where any number will do, the system gives one for UDP, and when that is taken for
// TCP another.
func listenForClients(ctx context.Context, sockets Sockets, address string, tcp bool) (clientSockets, error) {
	_, port, err := net.SplitHostPort(address)
	anyPort := err == nil && port == "0"
	for try := 0; ; try++ {
		var s clientSockets
		if s.udp, err = sockets.ListenPacket(ctx, "udp", address); err != nil || !tcp {
			return s, err
		}
		if s.tcp, err = sockets.Listen(ctx, "tcp", s.address()); err == nil {
			return s, nil
		}
		s.tcp = nil
		err = errors.Join(err, s.close())
		if !anyPort || !errors.Is(err, syscall.EADDRINUSE) || try == listenTries {
			return clientSockets{}, err
		}
	}
}

// address is host:port of both.
func (s *clientSockets) address() string { return s.udp.LocalAddr().String() }

func (s *clientSockets) close() error {
	var errs []error
	if s.udp != nil {
		errs = append(errs, closed(s.udp.Close()))
	}
	if s.tcp != nil {
		errs = append(errs, closed(s.tcp.Close()))
	}
	return errors.Join(errs...)
}

// listen serves both transports with one certificate. Each counts on its own.
func (n *node) listen(cfg session.Config) error {
	counted := map[string]*session.Stats{"quic": {}, "tls": {}}
	cfg.Stats = counted["quic"]
	quic, err := session.ListenQUIC(n.clients.udp, n.control.TLSConfig(), cfg)
	if err != nil {
		return err
	}
	n.serving = append(n.serving, quic)
	if n.clients.tcp != nil {
		cfg.Stats = counted["tls"]
		n.serving = append(n.serving, session.ListenTLS(n.clients.tcp, n.control.TLSConfig(), cfg))
	}
	registerTransport(n.registry, counted)
	return nil
}

// addresses are where clients are taken, the preferred one first.
func (n *node) addresses() []string {
	at := []string{"margay://" + n.clients.address()}
	if n.clients.tcp != nil {
		at = append(at, "margay+tls://"+n.clients.address())
	}
	return at
}
