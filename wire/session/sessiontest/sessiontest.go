// SPDX-License-Identifier: Apache-2.0

// Package sessiontest says over which transport tests reach brokers, in one place for all modules; it reads one
// environment variable and refuses what that does not know.
package sessiontest

import (
	"context"
	"crypto/tls"
	"os"

	"margay.dev/wire/session"
)

// Variable names the transport: quic, which is also what an empty one means, or tls. The suites are run once with each.
const Variable = "MARGAY_TEST_TRANSPORT"

// Transport is quic or tls.
func Transport() string {
	switch t := os.Getenv(Variable); t {
	case "", "quic":
		return "quic"
	case "tls":
		return "tls"
	default:
		panic(Variable + " is " + t + ": want quic or tls")
	}
}

// URL is the address of a broker at host:port, for a client.
func URL(hostPort string) string {
	if Transport() == "tls" {
		return "margay+tls://" + hostPort
	}
	return "margay://" + hostPort
}

// Dial connects without a client, for who speaks frames by hand.
func Dial(ctx context.Context, hostPort string, t *tls.Config, cfg session.Config) (session.Conn, error) {
	if Transport() == "tls" {
		return session.DialTLS(ctx, nil, hostPort, t, cfg)
	}
	return session.DialQUIC(ctx, nil, hostPort, t, cfg)
}
