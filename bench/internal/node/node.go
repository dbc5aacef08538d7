// SPDX-License-Identifier: Apache-2.0

// Package node asks a Margay node that runs what it says of itself, and connects to it, by the context file that it wrote; it
// changes nothing but the streams that it is told to make.
package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"margay.dev/client"
	"margay.dev/cluster/load/margay"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Node is one that runs.
type Node struct {
	context control.Context
	api     *control.Client
}

// Open reads a context file.
func Open(file string) (*Node, error) {
	k, err := control.LoadContext(file)
	if err != nil {
		return nil, err
	}
	return New(*k)
}

// New is Open of a context that is at hand.
func New(k control.Context) (*Node, error) {
	api, err := control.NewClient(k.Client())
	if err != nil {
		return nil, err
	}
	return &Node{k, api}, nil
}

// Close ends what Open began.
func (n *Node) Close() { n.api.Close() }

// Connect dials over quic or tls.
func (n *Node) Connect(ctx context.Context, transport string, more ...client.Option) (*client.Client, error) {
	return client.Connect(ctx, n.address(transport), append([]client.Option{client.WithContext(n.context)}, more...)...)
}

func (n *Node) address(transport string) string {
	if transport == "tls" {
		return "margay+tls://" + strings.Join(n.context.Addresses, ",")
	}
	return "margay://" + strings.Join(n.context.Addresses, ",")
}

// Stream makes a stream of one shard, unless it is there, and returns its full name.
func (n *Node) Stream(ctx context.Context, name, storage string) (string, error) {
	never := control.FsyncNever
	_, err := n.api.CreateStream(ctx, n.context.Tenant, n.context.Namespace, control.StreamSpec{Name: name, Storage: &storage, Fsync: &never})
	if e := client.AsError(err); err != nil && (e == nil || e.Code != code.AlreadyExists) {
		return "", err
	}
	return control.FullName(n.context.Tenant, n.context.Namespace, name), nil
}

// Cache makes a cache of so many shards, which flushes, unless it is there.
func (n *Node) Cache(ctx context.Context, name string, shards int) error {
	_, err := n.api.CreateCache(ctx, n.context.Tenant, n.context.Namespace, control.CacheSpec{Name: name, Shards: &shards})
	if e := client.AsError(err); err != nil && (e == nil || e.Code != code.AlreadyExists) {
		return err
	}
	return nil
}

// Queue makes a queue of one shard, which flushes, unless it is there.
func (n *Node) Queue(ctx context.Context, name string) error {
	_, err := n.api.Logs(control.PresetQueue).Create(ctx, n.context.Tenant, n.context.Namespace, control.LogSpec{Name: name})
	if e := client.AsError(err); err != nil && (e == nil || e.Code != code.AlreadyExists) {
		return err
	}
	return nil
}

// Load is how a load finds the node over quic or tls.
func (n *Node) Load(transport string) margay.Config {
	return margay.Config{Context: n.context, Address: n.address(transport)}
}

// Remove deletes a stream.
func (n *Node) Remove(ctx context.Context, name string) error {
	return n.api.DeleteStream(ctx, n.context.Tenant, n.context.Namespace, name, 0)
}

// Held is the memory that the node holds after a collection: live heap and stacks, in bytes.
func (n *Node) Held(ctx context.Context) (int64, error) {
	for range 2 { // the second: what finalizers and pools let go of
		if err := n.get(ctx, "/debug/pprof/heap?gc=1", io.Discard); err != nil {
			return 0, err
		}
	}
	m, err := n.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return int64(m["go_memstats_heap_alloc_bytes"] + m["go_memstats_stack_inuse_bytes"]), nil
}

// Metrics are the samples of the node's metrics page, by name with labels.
func (n *Node) Metrics(ctx context.Context) (map[string]float64, error) {
	var page strings.Builder
	if err := n.get(ctx, "/metrics", &page); err != nil {
		return nil, err
	}
	return samples(strings.NewReader(page.String()))
}

func (n *Node) get(ctx context.Context, path string, to io.Writer) error {
	token, err := n.api.Token(ctx)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.context.HTTP+path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", path, res.Status)
	}
	_, err = io.Copy(to, res.Body)
	return err
}

// samples reads the text format. Labels stay part of the name; what is not a sample is passed over.
func samples(r io.Reader) (map[string]float64, error) {
	all := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			all[line[:at]] = v
		}
	}
	return all, lines.Err()
}
