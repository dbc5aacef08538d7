// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// refused is the exit code of a node that does not start and has changed nothing.
const refused = 4

// wantRefusal starts a node that must not run, and holds it to the exit code, to the words that its error must show, and
// to having written nothing.
func wantRefusal(t *testing.T, p *process.Process, words ...string) {
	t.Helper()
	before := treeSum(t, p.Data())
	p.Spawn()
	exit := p.Wait()
	select {
	case <-p.Ready():
		t.Error("it said that it was ready")
	default:
	}
	if exit.Code != refused {
		t.Errorf("%v, want exit code %d", exit, refused)
	}
	for _, word := range words {
		if !strings.Contains(exit.Stderr, word) {
			t.Errorf("the error does not name %q:\n%s", word, exit.Stderr)
		}
	}
	if after := treeSum(t, p.Data()); after != before {
		t.Errorf("the directory was changed; before:\n%s\nafter:\n%s", before, after)
	}
}

// A second node on a directory is turned away with the name of the holder, the first is not disturbed, and a killed holder
// needs no cleaning up behind it (ST-16; S1).
func TestADirectoryHasOneNode(t *testing.T) {
	t.Parallel()
	first := process.Start(t, process.Config{})
	create(t, first, control.StreamSpec{Name: "one"})
	pub := first.Connect().Publisher("one")
	publish(t, pub, "k", "before")
	second := process.New(t, process.Config{Data: first.Data()})
	wantRefusal(t, second, first.Data(), strconv.Itoa(first.PID()))
	if ack := publish(t, pub, "k", "after"); ack.Offset != 1 {
		t.Errorf("the first node is disturbed: the next record lies at %d, want 1", ack.Offset)
	}
	first.Kill()
	second.Start()
	if got := values(readAll(t, second.Connect(), "one")); strings.Join(got, " ") != "before after" {
		t.Errorf("the second node serves %q", got)
	}
}

// Of two nodes that start at the same instant exactly one runs, on a directory that has one node's data and on one that is
// new (ST-16).
func TestARaceForADirectoryHasOneWinner(t *testing.T) {
	t.Parallel()
	rounds := 4
	if !testing.Short() {
		rounds = 20
	}
	data := filepath.Join(t.TempDir(), "data")
	a := process.New(t, process.Config{Data: data})
	b := process.New(t, process.Config{Data: data})
	for round := range rounds {
		if round%2 == 0 { // a new directory every other round
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
		}
		a.Spawn()
		b.Spawn()
		winner, loser := a, b
		eventually(t, "one of two nodes to lose the race", func() bool {
			select {
			case <-a.Exited():
				winner, loser = b, a
				return true
			case <-b.Exited():
				return true
			default:
				return false
			}
		})
		exit := loser.Wait()
		if exit.Code != refused || !strings.Contains(exit.Stderr, data) {
			t.Errorf("round %d: the loser ended with %v and said:\n%s", round, exit, exit.Stderr)
		}
		eventually(t, "the winner of the race to be ready", func() bool {
			select {
			case <-winner.Ready():
				return true
			case <-winner.Exited():
				t.Fatalf("round %d: neither runs; the winner said:\n%s\nthe loser:\n%s", round, winner.Wait().Stderr, exit.Stderr)
			default:
			}
			return false
		})
		winner.Kill()
	}
}

// A directory that has lost the file that says whose it is, or that got another's, is not served (ST-17).
func TestADirectoryWithoutItsIdentityIsRefused(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "mine"})
	publish(t, p.Connect().Publisher("mine"), "k", "v")
	p.Kill()
	identity := filepath.Join(p.Data(), "identity.json")
	own, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("missing", func(t *testing.T) {
		if err := os.Remove(identity); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, p, p.Data(), "identity")
	})
	t.Run("of another node", func(t *testing.T) {
		other := process.Start(t, process.Config{})
		other.Kill()
		foreign, err := os.ReadFile(filepath.Join(other.Data(), "identity.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(identity, foreign, 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, p, clusterOf(t, own), clusterOf(t, foreign))
	})
	t.Run("put back", func(t *testing.T) {
		if err := os.WriteFile(identity, own, 0o600); err != nil {
			t.Fatal(err)
		}
		p.Start()
		if got := values(readAll(t, p.Connect(), "mine")); len(got) != 1 {
			t.Errorf("it serves %q", got)
		}
	})
}

func clusterOf(t *testing.T, identity []byte) string {
	t.Helper()
	var id struct{ Cluster string }
	if err := json.Unmarshal(identity, &id); err != nil || id.Cluster == "" {
		t.Fatalf("identity %s: %v", identity, err)
	}
	return id.Cluster
}
