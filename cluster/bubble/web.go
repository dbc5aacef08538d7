// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// listener takes connections in memory: one of the operating system's would hold up virtual time. Their path is
// perfect: the death of a process ends them, and nothing else happens to them.
type listener struct {
	addr  net.Addr
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once

	mu   sync.Mutex
	open []net.Conn
}

// Listen implements node.Sockets.
func (n *Network) Listen(_ context.Context, _, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", address, err)
	}
	l := &listener{addr: net.TCPAddrFromAddrPort(at), conns: make(chan net.Conn), ended: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = l
	return l, nil
}

// Dial opens a connection to what listens at an address.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Err: errRefused}
	if l == nil {
		return nil, refused
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.ended:
		return nil, refused
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, c)
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// kill ends the listener and every connection that it took, as the death of its process does.
func (l *listener) kill() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close()
	}
}

func (n *Network) killListener(address string) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l != nil {
		l.kill()
	}
}
