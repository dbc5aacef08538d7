// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net"
	"strconv"
	"strings"

	"margay.dev/wire/code"
)

// DefaultPort is where brokers listen for clients unless an address says otherwise.
const DefaultPort = 7420

// Schemes of the addresses of brokers: over QUIC, and over TLS on TCP, for networks that block UDP.
const (
	schemeQUIC = "margay://"
	schemeTLS  = "margay+tls://"
)

// parseAddress reads "margay://host:port[,host:port...]"; the port may be left out. A part without a scheme has that of
// the part before it, the first one margay://. What is returned has a scheme only where that is another.
func parseAddress(s string) ([]string, *Error) {
	scheme := ""
	var addresses []string
	for part := range strings.SplitSeq(strings.TrimSuffix(s, "/"), ",") {
		part = strings.TrimSpace(part)
		if rest, ok := strings.CutPrefix(part, schemeQUIC); ok {
			scheme, part = "", rest
		} else if rest, ok := strings.CutPrefix(part, schemeTLS); ok {
			scheme, part = schemeTLS, rest
		}
		hostPort, why := parseHostPort(strings.TrimSuffix(part, "/"))
		if why != "" {
			return nil, code.New(code.BadRequest, "address %q: %s: want %[3]shost:port[,host:port], or %[4]s for TLS over TCP", s, why, schemeQUIC, schemeTLS)
		}
		addresses = append(addresses, scheme+hostPort)
	}
	return addresses, nil
}

func parseHostPort(s string) (hostPort, why string) {
	if strings.Contains(s, "://") {
		return "", "unknown scheme"
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		// Without a port: a name, an IPv4 address, or an IPv6 address with or without its brackets.
		host, port = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), strconv.Itoa(DefaultPort)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", "cannot tell host from port"
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "port is not a number from 1 to 65535"
	}
	if host == "" || strings.ContainsAny(host, "/@?# ") {
		return "", "no host"
	}
	return net.JoinHostPort(host, port), ""
}
