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

// scheme begins an address of brokers.
const scheme = "margay://"

// parseAddress reads "margay://host:port[,host:port...]"; the scheme and the port may be left out.
func parseAddress(s string) ([]string, *Error) {
	fail := func(why string) *Error {
		return code.New(code.BadRequest, "address %q: %s: want %shost:port[,host:port]", s, why, scheme)
	}
	rest, ok := strings.CutPrefix(s, scheme)
	if !ok {
		if before, _, found := strings.Cut(s, "://"); found {
			if before == "margay+tls" {
				return nil, code.New(code.Unsupported, "address %q: TLS over TCP is not supported by this release", s)
			}
			return nil, fail("unknown scheme")
		}
	}
	var addresses []string
	for part := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), ",") {
		part = strings.TrimSpace(part)
		host, port, err := net.SplitHostPort(part)
		if err != nil {
			// Without a port: a name, an IPv4 address, or an IPv6 address with or without its brackets.
			host, port = strings.TrimSuffix(strings.TrimPrefix(part, "["), "]"), strconv.Itoa(DefaultPort)
			if strings.Contains(host, ":") && net.ParseIP(host) == nil {
				return nil, fail("cannot tell host from port")
			}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fail("port is not a number from 1 to 65535")
		}
		if host == "" || strings.ContainsAny(host, "/@?# ") {
			return nil, fail("no host")
		}
		addresses = append(addresses, net.JoinHostPort(host, port))
	}
	return addresses, nil
}
