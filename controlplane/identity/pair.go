// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// pair is a certificate and its key. The key is ECDSA P-256: the one modern kind that every TLS library accepts.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte // of the key
}

func (p pair) pem() []byte {
	return append(certificatePEM(p.cert), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p.der})...)
}

func (p pair) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func readPair(path string) (pair, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return pair{}, err
	}
	c, err := tls.X509KeyPair(b, b) // also checks that they belong together
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, fmt.Errorf("%s: its key is of another kind than ECDSA", path)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", path, err)
	}
	return pair{cert: c.Leaf, key: key, der: der}, nil
}

func newCA(cluster string, now time.Time) (pair, error) {
	return newPair(x509.Certificate{
		Subject:               pkix.Name{CommonName: "margay CA of " + cluster},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(caLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
}

func newServer(ca pair, cluster string, names []string, addresses []net.IP, now time.Time) (pair, error) {
	end := now.Add(serverLife)
	if end.After(ca.cert.NotAfter) {
		end = ca.cert.NotAfter
	}
	return newPair(x509.Certificate{
		Subject:               pkix.Name{CommonName: "margay server of " + cluster},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              end,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              names,
		IPAddresses:           addresses,
	}, &ca)
}

// newPair makes a key and a certificate for it, signed by the parent, or by itself without one.
func newPair(template x509.Certificate, parent *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, err
	}
	template.SerialNumber = serial
	signer := pair{cert: &template, key: key}
	if parent != nil {
		signer = *parent
	}
	raw, err := x509.CreateCertificate(rand.Reader, &template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return pair{}, err
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{cert: cert, key: key, der: der}, err
}
