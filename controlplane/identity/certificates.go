// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The files in the certificates' directory, all of them for their owner only. A certificate and its key share a file, so
// that a crash cannot leave one beside the key of another.
const (
	caFile       = "ca-with-key.pem"
	caPublicFile = "ca.pem" // what clients are given
	serverFile   = "server-with-key.pem"
)

const (
	caLife     = 10 * 365 * 24 * time.Hour
	serverLife = 90 * 24 * time.Hour
	renewAt    = 30 * 24 * time.Hour // before the end
	// clockSlack is how far behind a client's clock may be and still find a new certificate valid.
	clockSlack = time.Hour
)

// CertificateOptions say whom the certificates are for.
type CertificateOptions struct {
	Dir     string
	Cluster string
	// Hosts are the names and addresses under which clients reach the server, beside those of loopback.
	Hosts  []string
	Wall   func() time.Time
	Logger *slog.Logger
}

// Certificates are the cluster's own CA and the server's certificate from it. Safe for concurrent use.
type Certificates struct {
	o       CertificateOptions
	ca      pair
	mu      sync.Mutex // one change of the server's certificate at a time
	current atomic.Pointer[tls.Certificate]
}

// OpenCertificates reads the certificates, and makes what is not there: a CA when the directory has none, a server
// certificate when that is missing, damaged, of another CA, for other hosts, or near its end. A CA that is there but
// cannot be read or has expired is never replaced: every client would have to be told.
func OpenCertificates(o CertificateOptions) (*Certificates, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	c := &Certificates{o: o}
	if err := c.openCA(); err != nil {
		return nil, err
	}
	server, err := readPair(filepath.Join(o.Dir, serverFile))
	switch {
	case err == nil && c.due(server.cert) == "":
		c.current.Store(server.tls())
		return c, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		o.Logger.Warn("server certificate cannot be read and is made anew", "error", err)
	}
	return c, c.issue()
}

func (c *Certificates) openCA() error {
	path := filepath.Join(c.o.Dir, caFile)
	ca, err := readPair(path)
	now := c.o.Wall()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if ca, err = newCA(c.o.Cluster, now); err == nil {
			err = writeFile(path, ca.pem())
		}
		if err != nil {
			return fmt.Errorf("make CA: %w", err)
		}
		c.o.Logger.Info("made a CA for this cluster", "file", path, "expires", ca.cert.NotAfter)
	case err != nil:
		return fmt.Errorf("read CA: %w: put the file back from a copy, or remove it to make a new CA, which every context must then be given", err)
	case !ca.cert.IsCA:
		return fmt.Errorf("read CA %s: the certificate in it is no CA", path)
	case now.After(ca.cert.NotAfter):
		return fmt.Errorf("read CA %s: it expired at %s: remove it to make a new one, which every context must then be given", path, ca.cert.NotAfter.Format(time.RFC3339))
	}
	c.ca = ca
	public := filepath.Join(c.o.Dir, caPublicFile)
	if have, err := os.ReadFile(public); err == nil && bytes.Equal(have, c.CA()) {
		return nil
	}
	if err := writeFile(public, c.CA()); err != nil {
		return fmt.Errorf("write CA certificate: %w", err)
	}
	return nil
}

// CA is the certificate that clients check the server against, in PEM.
func (c *Certificates) CA() []byte { return certificatePEM(c.ca.cert) }

// TLS is a configuration for servers. It follows renewals by itself and has no protocols: the listener adds its own.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}

// Expires is when the server's certificate ends.
func (c *Certificates) Expires() time.Time { return c.current.Load().Leaf.NotAfter }

// Renew makes a new server certificate if that is due, and reports whether it was.
func (c *Certificates) Renew() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due(c.current.Load().Leaf) == "" {
		return false, nil
	}
	return true, c.issue()
}

// Reload takes the server's certificate that is in the directory now, and reports whether it is another one than the one
// in use. A file that is gone is an order to make one anew. One that could not be used (no certificate, the key of another,
// expired, of another CA, for other hosts) is an error, and the one in use stays, in memory and in effect (OP-09).
func (c *Certificates) Reload() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	server, err := readPair(filepath.Join(c.o.Dir, serverFile))
	if errors.Is(err, fs.ErrNotExist) {
		return true, c.issue()
	}
	if err != nil {
		return false, fmt.Errorf("read server certificate: %w", err)
	}
	if bytes.Equal(server.cert.Raw, c.current.Load().Leaf.Raw) {
		return false, nil
	}
	if why := c.refuse(server.cert); why != "" {
		return false, fmt.Errorf("read server certificate %s: %s", filepath.Join(c.o.Dir, serverFile), why)
	}
	c.current.Store(server.tls())
	return true, nil
}

func (c *Certificates) issue() error {
	if have := c.current.Load(); have != nil {
		c.o.Logger.Info("server certificate is made anew", "reason", cmp.Or(c.due(have.Leaf), "its file is gone"))
	}
	names, addresses := c.subjects()
	server, err := newServer(c.ca, c.o.Cluster, names, addresses, c.o.Wall())
	if err == nil {
		err = writeFile(filepath.Join(c.o.Dir, serverFile), server.pem())
	}
	if err != nil {
		return fmt.Errorf("make server certificate: %w", err)
	}
	c.current.Store(server.tls())
	return nil
}

// due says why a certificate should be made anew, or nothing.
func (c *Certificates) due(cert *x509.Certificate) string {
	if c.o.Wall().Add(renewAt).After(cert.NotAfter) {
		return "it ends soon"
	}
	return c.refuse(cert)
}

// refuse says why clients would not take a certificate, or nothing.
func (c *Certificates) refuse(cert *x509.Certificate) string {
	now := c.o.Wall()
	names, addresses := c.subjects()
	switch {
	case now.After(cert.NotAfter):
		return "it has expired"
	case now.Before(cert.NotBefore):
		return "it is not valid yet"
	case cert.CheckSignatureFrom(c.ca.cert) != nil:
		return "it is not from this CA"
	case !slices.Equal(cert.DNSNames, names) || !slices.EqualFunc(cert.IPAddresses, addresses, net.IP.Equal):
		return "it is for other hosts"
	}
	return ""
}

// subjects are the hosts of the certificate, each once, in a fixed order.
func (c *Certificates) subjects() (names []string, addresses []net.IP) {
	for _, h := range append([]string{"localhost", "127.0.0.1", "::1"}, c.o.Hosts...) {
		if ip := net.ParseIP(h); ip == nil {
			if !slices.Contains(names, h) {
				names = append(names, h)
			}
		} else if !slices.ContainsFunc(addresses, ip.Equal) {
			addresses = append(addresses, ip)
		}
	}
	return names, addresses
}
