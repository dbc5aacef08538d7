// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"margay.dev/client"
	"margay.dev/wire/control"
)

// Connect returns a client of the node, closed when the test ends.
func (p *Process) Connect(opts ...client.Option) *client.Client {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	c, err := client.Connect(ctx, "", append([]client.Option{client.WithContext(p.Context())}, opts...)...)
	if err != nil {
		p.t.Fatalf("connect: %v", err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// Control returns a client of the node's control plane, closed when the test ends.
func (p *Process) Control() *control.Client {
	p.t.Helper()
	if p.control == nil {
		cc := p.Context()
		c, err := control.NewClient(cc.Client())
		if err != nil {
			p.t.Fatalf("control plane: %v", err)
		}
		p.t.Cleanup(c.Close)
		p.control = c
	}
	return p.control
}

// Metrics returns every sample that the node exposes, by its name with labels.
func (p *Process) Metrics() (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	tok, err := p.Control().Token(ctx)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.HTTP()+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+tok.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s", res.Status)
	}
	return parseMetrics(res.Body)
}

func parseMetrics(r io.Reader) (map[string]float64, error) {
	samples := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read metrics: %q: %w", line, err)
		}
		samples[line[:at]] = v
	}
	return samples, lines.Err()
}

// Descriptors lists what the node has open: paths, sockets, pipes. A file that was removed and is still open ends in
// " (deleted)". Linux only.
func (p *Process) Descriptors() []string {
	p.t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(p.PID()), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		p.t.Fatalf("list the node's descriptors: %v", err)
	}
	var open []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // else closed meanwhile
			open = append(open, target)
		}
	}
	return open
}
