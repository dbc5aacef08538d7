// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
)

// The defaults.
const (
	// DefaultBufferBytes bounds the memory for records that are not acknowledged yet, over all publishers of a client.
	DefaultBufferBytes = 64 << 20
	// DefaultDeliveryTimeout is how long a record is tried.
	DefaultDeliveryTimeout = 2 * time.Minute
	// MaxDeliveryTimeout is the longest that may be asked for: brokers remember a producer that holds a batch at least
	// that long, and not for ever.
	MaxDeliveryTimeout = 5 * time.Minute
	// DefaultConnectTimeout bounds Connect when its context has no deadline.
	DefaultConnectTimeout = 10 * time.Second
	// DefaultRequestTimeout bounds a lookup when its context has no deadline, and each try of a subscription to resume.
	DefaultRequestTimeout = 30 * time.Second
)

// Compression of batches: values and headers only, keys stay readable for the broker.
type Compression = batch.Compression

// The compressions.
const (
	NoCompression = batch.None
	Zstd          = batch.Zstd
)

// Option sets up a Client.
type Option interface{ apply(c *config) }

// PublisherOption sets up a Publisher.
type PublisherOption interface{ applyPublisher(p *publisherConfig) }

// SharedOption is for a Publisher, or for a Client as the default of its publishers.
type SharedOption interface {
	Option
	PublisherOption
}

type config struct {
	addresses   []string
	credential  credential
	tls         *tls.Config
	logger      *slog.Logger
	bufferBytes int64
	packetConn  func(ctx context.Context, address string) (net.PacketConn, error)
	tcpConn     session.NetDial
	rng         *rand.Rand
	tenant      string
	namespace   string
	ca          []byte
	httpURL     string
	apiKey      string
	publisher   publisherConfig
	// subscribeTimeout bounds one attempt to subscribe.
	subscribeTimeout time.Duration
	problems         []error
}

type credential interface {
	Token(ctx context.Context) (token string, expires time.Time, err error)
	Renew(ctx context.Context, old string) (token string, expires time.Time, err error)
}

type publisherConfig struct {
	ack             AckLevel
	deliveryTimeout time.Duration
	compression     Compression
	failWhenFull    bool
	anonymous       bool
	producerName    string
	producer        uint64 // of a publisher with a name
	batchBytes      int64  // up to which a batch grows; 0 for batchBytes
}

type option func(c *config)

func (o option) apply(c *config) { o(c) }

type shared func(p *publisherConfig)

func (o shared) apply(c *config)                   { o(&c.publisher) }
func (o shared) applyPublisher(p *publisherConfig) { o(p) }

// WithToken shows a fixed token to brokers. When it ends, so do the connections.
func WithToken(token string) Option {
	return option(func(c *config) { c.apiKey, c.credential = "", fixedToken(token) })
}

// WithTokenSource asks source for tokens, and again before each ends; connections live on.
func WithTokenSource(source TokenSource) Option {
	return option(func(c *config) { c.apiKey, c.credential = "", newCachedCredential(source) })
}

// WithAPIKey exchanges an API key for tokens at the control plane (http://host:port or https://host:port), whose
// certificate is verified as those of brokers are.
func WithAPIKey(httpURL, key string) Option {
	return option(func(c *config) { c.httpURL, c.apiKey, c.credential = httpURL, key, nil })
}

// WithCA verifies brokers by the PEM certificates and by nothing else.
func WithCA(pem []byte) Option {
	return option(func(c *config) { c.setCA(pem) })
}

// WithTLSConfig verifies brokers as cfg says. The server name is filled in from each address when empty.
func WithTLSConfig(cfg *tls.Config) Option {
	return option(func(c *config) { c.tls = cfg.Clone() })
}

// WithLogger gets what is worth knowing and no error returns: renewals that fail, data a shard lost. Default: none.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) { c.logger = l })
}

// WithBufferBytes bounds the memory for records that are not acknowledged yet. Default DefaultBufferBytes. When it is
// full, publishing waits for room, or fails with ErrBufferFull (FailWhenFull).
func WithBufferBytes(n int64) Option {
	return option(func(c *config) {
		if n < 1 {
			c.fail("buffer of %d bytes: want at least 1", n)
		}
		c.bufferBytes = n
	})
}

// WithPacketConn makes the UDP socket of each connection to a margay:// address: for simulated networks and for sockets with special needs. The
// client closes what it is given.
func WithPacketConn(dial func(ctx context.Context, address string) (net.PacketConn, error)) Option {
	return option(func(c *config) { c.packetConn = dial })
}

// WithTCPConn makes the TCP connections to margay+tls:// addresses, one for each connection and one for each of its lanes:
// through a proxy, or on a simulated network. All connections made for one address must reach the same node.
func WithTCPConn(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return option(func(c *config) { c.tcpConn = dial })
}

// WithRand draws producer ids, jitter and the first shard from rng, which the caller must not use any more.
func WithRand(rng *rand.Rand) Option {
	return option(func(c *config) { c.rng = rng })
}

// WithNamespace is where short names belong. Default: "default" in "default".
func WithNamespace(tenant, namespace string) Option {
	return option(func(c *config) { c.tenant, c.namespace = tenant, namespace })
}

// WithContext takes addresses (unless Connect got some), CA, API key, tenant and namespace from a context.
func WithContext(k control.Context) Option {
	return option(func(c *config) {
		if len(c.addresses) == 0 {
			for _, a := range k.Addresses {
				parsed, err := parseAddress(a)
				if err != nil {
					c.problems = append(c.problems, err)
				}
				c.addresses = append(c.addresses, parsed...)
			}
		}
		if k.CA != "" {
			c.setCA([]byte(k.CA))
		}
		c.tenant, c.namespace = k.Tenant, k.Namespace
		if k.APIKey != "" && k.HTTP != "" {
			c.httpURL, c.apiKey, c.credential = k.HTTP, k.APIKey, nil
		}
	})
}

// WithDeliveryTimeout is how long a record is tried before it is given up, at most MaxDeliveryTimeout. Default
// DefaultDeliveryTimeout.
func WithDeliveryTimeout(d time.Duration) SharedOption {
	return shared(func(p *publisherConfig) { p.deliveryTimeout = d })
}

// WithCompression compresses batches. Default none.
func WithCompression(c Compression) SharedOption {
	return shared(func(p *publisherConfig) { p.compression = c })
}

// WithAck is what an acknowledgement waits for. Default: the log's rule.
func WithAck(level AckLevel) SharedOption {
	return shared(func(p *publisherConfig) { p.ack = level })
}

// FailWhenFull makes publishing fail with ErrBufferFull when the client's buffer is full, instead of waiting for room.
func FailWhenFull() SharedOption {
	return shared(func(p *publisherConfig) { p.failWhenFull = true })
}

// WithoutIdempotence publishes without a producer id: what may have been stored is never sent again, and ends as
// ErrOutcomeUnknown. Order holds only while nothing is refused.
func WithoutIdempotence() SharedOption {
	return shared(func(p *publisherConfig) { p.anonymous = true })
}

func (c *config) fail(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

func (c *config) setCA(pem []byte) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		c.fail("CA: no PEM certificate in %d bytes", len(pem))
	}
	if c.tls == nil {
		c.tls = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	c.tls.RootCAs = pool
	c.ca = pem
}

func (p *publisherConfig) check() *Error {
	switch {
	case p.deliveryTimeout <= 0 || p.deliveryTimeout > MaxDeliveryTimeout:
		return code.New(code.BadRequest, "delivery timeout %v: want more than 0 and at most %v", p.deliveryTimeout, MaxDeliveryTimeout)
	case p.ack > AckQuorum:
		return code.New(code.BadRequest, "ack level %d is not known", p.ack)
	case p.producer != 0 && (p.producerName == "" || p.anonymous):
		return code.New(code.BadRequest, "ProducerName %q: want a name, and a publisher that is idempotent", p.producerName)
	case p.compression != NoCompression && p.compression != Zstd:
		return code.New(code.BadRequest, "compression %d is not known", p.compression)
	}
	return nil
}
