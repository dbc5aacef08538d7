// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"margay.dev/wire/code"
)

// DialQUIC connects to addr ("host:port"; of several addresses IPv4 first, one after the other). With pc
// nil the connection has a socket of its own; otherwise it uses pc alone until it is closed, and pc
// stays the caller's to close. An error says that nothing was applied anywhere.
func DialQUIC(ctx context.Context, pc net.PacketConn, addr string, t *tls.Config, cfg Config) (Conn, error) {
	cfg = cfg.WithDefaults()
	host, targets, err := resolve(ctx, addr)
	if err != nil {
		return nil, dialError(addr, err)
	}
	t = cfg.tls(t)
	if t.ServerName == "" {
		t.ServerName = host
	}
	for _, target := range targets {
		var c Conn
		if c, err = dialOne(ctx, pc, target, t, cfg); err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, dialError(addr, err)
}

func dialOne(ctx context.Context, pc net.PacketConn, target netip.AddrPort, t *tls.Config, cfg Config) (Conn, error) {
	own := pc == nil
	if own {
		wildcard := netip.IPv4Unspecified()
		if target.Addr().Is6() {
			wildcard = netip.IPv6Unspecified()
		}
		var err error
		if pc, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(wildcard, 0))); err != nil {
			return nil, err
		}
		if err := tuneSocket(pc, cfg.SocketBuffer); err != nil {
			cfg.Logger.Debug("UDP socket buffers are small: raise net.core.rmem_max and net.core.wmem_max",
				"want", cfg.SocketBuffer, "cause", err)
		}
	}
	transport := cfg.transport(pc)
	release := func() error {
		err := transport.Close()
		if own {
			err = errors.Join(err, pc.Close())
		}
		return err
	}
	// Dial, not DialEarly: nothing is sent before the handshake is complete, so nothing can be replayed.
	qc, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(target), t, cfg.quic())
	if err != nil {
		_ = release() // the dial error says more
		return nil, err
	}
	return newQUICConn(qc, cfg, release), nil
}

func resolve(ctx context.Context, addr string) (host string, targets []netip.AddrPort, err error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return "", nil, code.New(code.BadRequest, "%w", err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return "", nil, code.New(code.BadRequest, "port %q is not a number from 1 to 65535", service)
	}
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return "", nil, code.New(code.Unavailable, "%w", err)
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	for _, ip := range ips {
		targets = append(targets, netip.AddrPortFrom(ip, uint16(port)))
	}
	return host, targets, nil
}

// dialError: whatever went wrong, nothing was applied. Running out of time means that nobody answered.
func dialError(addr string, err error) error {
	e := code.From(convert("dial "+addr, err))
	if e.Code == code.Timeout || e.Code == code.Internal {
		e = code.New(code.Unavailable, "dial %s: %w", addr, err)
	}
	if e.Class == code.ClassUnknown {
		e.Class = code.ClassRefused
	}
	return e
}
