// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBenchMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"nonsense":                                  "unknown command",
		"pub a b":                                   "at most 1 arg",
		"pub --clients 0":                           "--clients 0",
		"pub --clients -1":                          "--clients -1",
		"pub --in-flight 0":                         "--in-flight 0",
		"pub --size 4":                              "--size 4",
		"pub --messages 5 --duration 1s":            "give one of them",
		"pub --messages x":                          "invalid",
		"pub --duration -1s":                        "--duration -1s",
		"pub --rate -5":                             "--rate -5",
		"pub --subscribers 2":                       "unknown flag",
		"pub --server nowhere":                      "spawn or context",
		"pub --server spawn orders":                 "leave out orders",
		"pub --server-pid 5":                        "--server-pid",
		"pub --server context --dir /":              "--dir",
		"pub --transport udp":                       "quic or tls",
		"pub --fsync often":                         "always or interval or never",
		"pub --storage tape":                        "disk or memory",
		"pub --ack maybe":                           "none or leader or quorum",
		"pub orders --shards 2":                     "used as it is",
		"pub orders --fsync never":                  "used as it is",
		"latency --rate 0":                          "bench pub",
		"sub --prepared":                            "name the STREAM",
		"sub --storage memory":                      "no beginning",
		"sub --rate 5":                              "unknown flag",
		"fanout --subscribers 2 --connections 3":    "--connections 3",
		"put a b":                                   "at most 1 arg",
		"put --keys 0":                              "--keys 0",
		"put --ack leader":                          "unknown flag",
		"put --pace 1s":                             "--pace 1s",
		"put flags --shards 2":                      "for a cache that is made",
		"get --watchers 2":                          "unknown flag",
		"watch --keys 5":                            "--watch prefix",
		"watch --watch pattern":                     "key or prefix",
		"watch --size 10":                           "--size 10",
		"watch --watchers 2 --connections 3":        "--connections 3",
		"work --duration 1s":                        "unknown flag",
		"work --ordered":                            "--keys",
		"work --consumers 0":                        "--consumers 0",
		"work --consumers 2 --connections 3":        "--connections 3",
		"work --max-in-flight 100001":               "--max-in-flight 100001",
		"work --storage memory":                     "unknown flag",
		"handle --keys 5":                           "unknown flag",
		"handle mail --shards 2":                    "for a queue that is made",
		"storage extra":                             "unknown command",
		"storage --writers 0":                       "--writers 0",
		"storage --batch 1":                         "--batch 1",
		"storage --fsync often":                     "--fsync",
		"storage --rounds 0":                        "--rounds 0",
		"storage --dir /there/is/nothing/like/this": "--dir",
	} {
		got := shell{}.run(t.Context(), append([]string{"bench"}, strings.Fields(args)...)...)
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, want) {
			t.Errorf("margay bench %s: %+v: want misuse, and %q", args, got, want)
		}
	}
}

// The storage engine needs no node.
func TestBenchStorage(t *testing.T) {
	args := []string{"bench", "storage", "--dir", t.TempDir(), "--writers", "2", "--batch", "4KiB", "--rounds", "2", "--duration", "10ms"}
	got := shell{}.run(t.Context(), append(args, "--json")...)
	var r struct {
		System string
		Ratios []float64
	}
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code != 0 || len(r.Ratios) != 2 || !strings.Contains(r.System, "1.2.3") {
		t.Errorf("%+v, %v", got, err)
	}
	for format, want := range map[string]string{"text": "of bare", "raw": "."} {
		if got := (shell{}).run(t.Context(), append(args, "-o", format)...); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: %+v", format, got)
		}
	}
}
