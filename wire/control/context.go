// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxContextFile bounds a context file, in bytes; a real one has a few kilobytes.
const maxContextFile = 1 << 20

// Context is where a cluster is and how to prove who one is to it: all that a client needs, in one file. It holds a
// secret, so files of it are for their owner only, and printing it shows none.
type Context struct {
	Name      string   `yaml:"name"`
	Addresses []string `yaml:"addresses"`         // of brokers, host:port
	HTTP      string   `yaml:"http,omitempty"`    // base URL of the control plane
	CA        string   `yaml:"ca,omitempty"`      // PEM certificates that servers are checked against
	APIKey    string   `yaml:"api_key,omitempty"` // the secret
	Tenant    string   `yaml:"tenant,omitempty"`
	Namespace string   `yaml:"namespace,omitempty"`
}

// String shows the context without its secret.
func (c Context) String() string {
	key := "none"
	if c.APIKey != "" {
		key = "set"
	}
	return fmt.Sprintf("context %q: brokers %s, http %s, tenant %q, namespace %q, api key %s",
		c.Name, strings.Join(c.Addresses, " "), c.HTTP, c.Tenant, c.Namespace, key)
}

// GoString is String: %#v must not show the secret either.
func (c Context) GoString() string { return c.String() }

// Client is the configuration of a REST client for the context.
func (c *Context) Client() ClientConfig {
	return ClientConfig{Address: c.HTTP, CA: []byte(c.CA), APIKey: c.APIKey}
}

// LoadContext reads a context file. Tenant and namespace come filled in.
func LoadContext(path string) (*Context, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read context: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxContextFile+1))
	if err != nil {
		return nil, fmt.Errorf("read context %s: %w", path, err)
	}
	if len(b) > maxContextFile {
		return nil, fmt.Errorf("read context %s: larger than %d bytes", path, maxContextFile)
	}
	c := &Context{}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read context %s: the file is empty", path)
		}
		// The decoder quotes what it could not read, and that may be the key.
		return nil, fmt.Errorf("read context %s: %s", path, maskSecret(err.Error()))
	}
	if len(c.Addresses) == 0 && c.HTTP == "" {
		return nil, fmt.Errorf("read context %s: names neither addresses nor http", path)
	}
	if c.Tenant == "" {
		c.Tenant = DefaultTenant
	}
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	return c, nil
}

// maskSecret cuts a message off where an API key begins.
func maskSecret(msg string) string {
	if before, _, ok := strings.Cut(msg, APIKeyPrefix); ok {
		return before + APIKeyPrefix + "..."
	}
	return msg
}

// SaveContext writes a context file, readable by its owner only. A crash leaves the old file or the new one, whole.
func SaveContext(path string, c *Context) error {
	b, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write context %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write context: %w", err)
	}
	if err := writeFileAtomic(dir, path, b); err != nil {
		return fmt.Errorf("write context %s: %w", path, err)
	}
	return nil
}

func writeFileAtomic(dir, path string, b []byte) (err error) {
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // made 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	// The file is in place; not every file system can make sure that it survives a power cut.
	if d, oerr := os.Open(dir); oerr == nil {
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}
