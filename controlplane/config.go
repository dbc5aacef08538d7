// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"margay.dev/wire/control"
)

// Config says what the control plane of one node is for. Dir and Node are required.
type Config struct {
	// Dir holds the catalog and the certificates and nothing else. It is made if need be; one process at a time works in it.
	Dir string
	// Node is the id of the one broker, to which every shard is given.
	Node string
	// Cluster is the cluster's name, for good. Default: the one the catalog has, or a random one for a new catalog.
	Cluster string
	// Address is host:port at which clients reach the broker. It may come later, by SetAddress.
	Address string
	// Hosts are names and addresses the certificate is for, beside those of loopback and the host of Address.
	Hosts []string
	// Wall gives the time of day. Default time.Now.
	Wall func() time.Time
	// Logger is where events go. Default: nowhere.
	Logger *slog.Logger
	// Level is the least that Logger takes, and can be changed over the API. Default: it cannot.
	Level *slog.LevelVar
	// Status says how the node is. Default: there is no operation that asks.
	Status func() control.Status
}

// Validate reports all that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Dir == "" {
		fault("dir: is required")
	}
	if !control.ValidName(c.Node) {
		fault("node: %.100q is not %s", c.Node, control.NameRule)
	}
	if c.Cluster != "" && !control.ValidName(c.Cluster) {
		fault("cluster: %.100q is not %s", c.Cluster, control.NameRule)
	}
	if c.Address != "" {
		if err := checkAddress(c.Address); err != nil {
			fault("address: %w", err)
		}
	}
	for i, h := range c.Hosts {
		if err := checkHost(h); err != nil {
			fault("hosts[%d]: %w", i, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("control plane configuration: %w", errors.Join(errs...))
	}
	return nil
}

// checkAddress refuses an address that a client could not dial: the one to listen at may be a wildcard, this may not.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%.100q is not host:port", address)
	}
	if port == "" || port == "0" {
		return fmt.Errorf("%.100q has no port that a client could dial", address)
	}
	return checkHost(host)
}

func checkHost(host string) error {
	if ip := net.ParseIP(host); ip != nil {
		if ip.IsUnspecified() {
			return fmt.Errorf("%q stands for every address: name one that clients can dial", host)
		}
		return nil
	}
	if host == "" || len(host) > 253 || strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) {
		return fmt.Errorf("%.100q is neither a host name nor an IP address", host)
	}
	return nil
}
