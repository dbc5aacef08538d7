// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// Reloads of the same, of a changed and of a broken configuration, and a new certificate each time, disturb nobody who
// is being served (OP-09).
func TestReloadsUnderTraffic(t *testing.T) {
	t.Parallel()
	rounds := 10
	if !testing.Short() {
		rounds = 200
	}
	file := filepath.Join(t.TempDir(), "margay.yaml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const same = "log: {level: debug, format: json}\n"
	configure(same)
	p := process.Start(t, process.Config{Args: []string{"--config", file}})
	create(t, p, control.StreamSpec{Name: "served", Shards: new(2)})
	tr := newTraffic(t, "served")
	r := tr.read(p.Connect(), "reader", 2)
	tr.publishAsync(p.Connect(), "publisher", 500)
	tr.publishBatches(p.Connect(), "batches", 5)

	said := func(text string) int { return strings.Count(p.Log(), text) }
	certificate := filepath.Join(p.Data(), "control", "identity", "server-with-key.pem")
	for i := range rounds {
		tr.allow(50)
		var says string
		switch i % 3 {
		case 0:
			configure(same)
			says = `"msg":"reload: the configuration was read"`
		case 1:
			configure(same + "limits: {connections: 7}\n")
			says = `"key":"limits.connections","in_effect":"10000","configured":"7"`
		case 2:
			configure("log: {level: debug\n")
			says = "no YAML"
		}
		if err := os.Remove(certificate); err != nil {
			t.Fatal(err)
		}
		before, renewed := said(says), said("new connections are given the new certificate")
		acked := tr.acked.Load()
		p.Hangup()
		tr.allow(50)
		eventually(t, "the reload to say "+says, func() bool { return said(says) > before })
		eventually(t, "the certificate to be another one", func() bool { return said("new connections are given the new certificate") > renewed })
		eventually(t, "publishes to go on", func() bool { return tr.acked.Load() > acked })
		p.Must(nil, "sub", "served", "--end", "--count", "1") // a new connection, with the new certificate
	}
	tr.stopPublishers()
	tr.judge(p.Connect())
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lost) > 0 {
		t.Errorf("the reader lost its connection: %v", r.lost)
	}
}
