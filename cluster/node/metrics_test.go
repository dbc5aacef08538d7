// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"margay.dev/cluster/margaytest"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md anew")

// family is one metric as a scrape shows it.
type family struct {
	name, typ, help string
	labels          map[string][]string
}

var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)

var label = regexp.MustCompile(`([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"`)

// scrape reads the families of a node, in order of name.
func scrape(t *testing.T, n *margaytest.Node) []*family {
	t.Helper()
	status, body := get(t, n.HTTP()+"/metrics", owner(t, n))
	if status != http.StatusOK {
		t.Fatalf("/metrics answers %d", status)
	}
	byName := map[string]*family{}
	at := func(name string) *family {
		if byName[name] == nil {
			byName[name] = &family{name: name, labels: map[string][]string{}}
		}
		return byName[name]
	}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		line := lines.Text()
		if word, rest, ok := strings.Cut(strings.TrimPrefix(line, "# "), " "); strings.HasPrefix(line, "# ") && ok {
			name, text, _ := strings.Cut(rest, " ")
			switch word {
			case "HELP":
				at(name).help = text
			case "TYPE":
				at(name).typ = text
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("this is no sample: %q", line)
		}
		name := m[1]
		if byName[name] == nil { // of a histogram
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			f := at(name)
			if !slices.Contains(f.labels[l[1]], l[2]) {
				f.labels[l[1]] = append(f.labels[l[1]], l[2])
			}
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *family) int { return strings.Compare(a.name, b.name) })
}

// labels that may be: each has few values, all known beforehand. None of a stream, tenant, shard, subject or
// address: those grow with what users do. Groups have names, a thousand of them at the most, and a node that has none says so
// under no name.
var bounded = map[string]int{
	"result": 5, "code": 64, "reason": 8, "cause": 8, "state": 8, "limit": 4, "transport": 2, "le": 24, "version": 1, "quantile": 8, "kind": 4,
	"op": 4, "log": 1, "group": 1,
}

// The names are Prometheus's: counters end in _total, sizes and times are in bytes and seconds, and every label is
// bounded.
func TestMetricsFollowConventions(t *testing.T) {
	for _, f := range scrape(t, margaytest.Start(t)) {
		if f.help == "" || f.typ == "" {
			t.Errorf("%s has help %q and type %q", f.name, f.help, f.typ)
		}
		for l, values := range f.labels {
			if limit, ok := bounded[l]; !ok || len(values) > limit {
				t.Errorf("%s has %d values of label %s, of which there may be %d", f.name, len(values), l, limit)
			}
		}
		if !strings.HasPrefix(f.name, "margay_") {
			continue
		}
		if (f.typ == "counter") != strings.HasSuffix(f.name, "_total") {
			t.Errorf("%s is a %s", f.name, f.typ)
		}
		for _, unit := range []string{"_ms", "_milliseconds", "_us", "_kb", "_mb", "_percent"} {
			if strings.Contains(f.name+"_", unit+"_") {
				t.Errorf("%s is not in base units", f.name)
			}
		}
		if !strings.HasSuffix(f.help, ".") {
			t.Errorf("the help of %s is no sentence: %q", f.name, f.help)
		}
	}
}

// The catalogue names exactly what a node exports. `go test ./node -run MetricsPage -update` (in cluster) writes it.
func TestMetricsPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "reference", "metrics.md")
	want := metricsPage(t, scrape(t, margaytest.Start(t)))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	was, is := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("the page says what no node exports: %s", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("the page lacks: %s", line)
		}
	}
	t.Error("docs/reference/metrics.md is stale: run go test ./node -run MetricsPage -update in cluster")
}

// chapters are the parts of the page, each with the words that its metrics begin with.
var chapters = []struct {
	title string
	words string
}{
	{"Connections", "connections token transport"},
	{"Publishing", "publishes publish inflight inbox errors"},
	{"Subscriptions", "subscriptions subscription deliveries delivery gaps gap catch slow cursors last"},
	{"Queues", "consumers consume settle group groups"},
	{"Logs and disk", "append flush log reclaimed repaired disk open sealed"},
	{"Keys", "key keys carried cache watch watches"},
	{"Shards", "shards shard unknown"},
	{"The node", "build"},
}

const metricsIntro = `# Metrics

<!-- Generated from a running node: go test ./node -run MetricsPage -update (in cluster). -->

` + "`GET /metrics`" + ` of a node's HTTP port answers with the text format of Prometheus to who may manage the node (a token with
a grant on everything). Beside these there are ` + "`go_…`" + ` and ` + "`process_…`" + `, as every Go program has them: memory, goroutines, and
` + "`process_open_fds`" + ` of ` + "`process_max_fds`" + ` descriptors.

No label names a tenant, a shard, a subject or an address, and none but those of consumer groups a log: labels have the values below
and no others, and those are there from the start. The first 1000 groups by the names of their logs and their own have rows of their
own, and what the others come to stands in one without names. Counters begin at 0 with each start of the node.

Worth an alert: ` + "`margay_shards{state!=\"open\"}`" + ` above 0 for minutes (` + "`margay status`" + ` says why), ` + "`margay_disk_full`" + ` at 1 or
` + "`margay_disk_free_bytes`" + ` near ` + "`margay_disk_reserve_bytes`" + `, ` + "`margay_flush_failures_total`" + ` rising at all,
` + "`margay_log_start_records_total{cause=\"full_disk\"}`" + ` rising (records are given up), ` + "`margay_errors_total{code=\"storage_full\"}`" + ` or
` + "`{code=\"overloaded\"}`" + ` rising, and ` + "`margay_inflight_bytes`" + ` at its limit.
`

func metricsPage(t *testing.T, families []*family) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(metricsIntro)
	left := map[string]*family{}
	for _, f := range families {
		if strings.HasPrefix(f.name, "margay_") {
			left[f.name] = f
		} else if word, _, _ := strings.Cut(f.name, "_"); word != "go" && word != "process" {
			t.Errorf("%s is neither ours nor of the Go and process collectors", f.name)
		}
	}
	for _, c := range chapters {
		fmt.Fprintf(&b, "\n## %s\n\n| name | type | labels | what it is |\n| --- | --- | --- | --- |\n", c.title)
		words := strings.Fields(c.words)
		for _, f := range families {
			word, _, _ := strings.Cut(strings.TrimPrefix(f.name, "margay_"), "_")
			if left[f.name] == nil || !slices.Contains(words, word) {
				continue
			}
			delete(left, f.name)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, f.typ, f.labelText(), f.help)
		}
	}
	for name := range left {
		t.Errorf("%s belongs to no chapter of the page: add its first word to one", name)
	}
	return b.String()
}

// labelText names the labels with their values; of the buckets of a histogram and of versions there is no need.
func (f *family) labelText() string {
	var out []string
	for _, l := range slices.Sorted(maps.Keys(f.labels)) {
		switch l {
		case "le":
		case "version":
			out = append(out, "`version`")
		case "log", "group":
			out = append(out, "`"+l+"`: its name")
		case "code":
			out = append(out, "`code`: the [error's](errors.md) name")
		default:
			out = append(out, "`"+l+"`: "+strings.Join(f.labels[l], ", "))
		}
	}
	return strings.Join(out, "; ")
}
