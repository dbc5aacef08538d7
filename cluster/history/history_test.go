// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"margay.dev/cluster/history"
)

var (
	shard = history.Shard{Log: "orders", Number: 3}
	other = history.Shard{Log: "orders", Number: 4}
)

// script writes a history in a few words. Values are named by one string each.
type script struct{ *history.Recorder }

func (s script) begin(producer, key, value string) history.ID {
	return s.Begin(history.Attempt{
		Client: "c", Op: "publish", Producer: producer, Key: key, Digest: history.Sum([]byte(key), []byte(value)),
	})
}

func (s script) ack(id history.ID, offset, generation uint64) {
	s.End(id, history.Answer{Outcome: history.Acked, Shard: shard, Offset: offset, Generation: generation})
}

// put is an attempt that nothing overlaps.
func (s script) put(key, value string, offset uint64) { s.ack(s.begin("p", key, value), offset, 1) }

func (s script) end(id history.ID, o history.Outcome) { s.End(id, history.Answer{Outcome: o}) }

func (s script) got(reader string, offset uint64, key, value string) {
	s.Read(reader, history.Record{Shard: shard, Offset: offset, Key: key, Digest: history.Sum([]byte(key), []byte(value))})
}

// Each case is a history with one promise broken in it: the checker must name that one and nothing else.
func TestCheckCatchesEachBrokenPromise(t *testing.T) {
	cases := map[string]struct {
		want history.Kind
		bad  func(s script)
	}{
		"an acknowledged record behind the end that the audit found": {history.Lost, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.got("audit", 0, "k", "a")
			s.Audit("audit", shard, 0, 1)
		}},
		"an acknowledged record in a hole that the audit was told of": {history.Lost, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.put("k", "c", 2)
			s.got("audit", 0, "k", "a")
			s.Gap("audit", shard, 1, 2)
			s.got("audit", 2, "k", "c")
			s.Audit("audit", shard, 0, 3)
		}},
		"an acknowledged record's offset holds another": {history.Altered, func(s script) {
			id := s.begin("", "k", "b") // never answered, stored where the answer of a said a is
			s.put("k", "a", 0)
			s.got("r", 0, "k", "b")
			_ = id
		}},
		"an acknowledged record is stored, at another offset": {history.Altered, func(s script) {
			s.put("k", "a", 7)
			s.got("r", 4, "k", "a")
		}},
		"a record under another key": {history.Altered, func(s script) {
			s.put("k", "a", 0)
			s.Read("r", history.Record{Shard: shard, Offset: 0, Key: "other", Digest: history.Sum([]byte("k"), []byte("a"))})
		}},
		"a refused record is stored": {history.Stored, func(s script) {
			s.end(s.begin("p", "k", "a"), history.Refused)
			s.got("r", 0, "k", "a")
		}},
		"a record refused for good is stored": {history.Stored, func(s script) {
			s.end(s.begin("p", "k", "a"), history.Fatal)
			s.got("r", 0, "k", "a")
		}},
		"an acknowledged record is stored twice": {history.Twice, func(s script) {
			s.put("k", "a", 0)
			s.got("r", 0, "k", "a")
			s.got("r", 1, "k", "a")
		}},
		"an unanswered record is stored twice": {history.Twice, func(s script) {
			s.begin("p", "k", "a")
			s.got("r", 0, "k", "a")
			s.got("r", 1, "k", "a")
		}},
		"a record is stored in two shards": {history.Twice, func(s script) {
			s.put("k", "a", 0)
			s.got("r", 0, "k", "a")
			s.Read("r", history.Record{Shard: other, Offset: 0, Key: "k", Digest: history.Sum([]byte("k"), []byte("a"))})
		}},
		"two answers give one offset": {history.Clash, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 0)
		}},
		"a record that nobody wrote": {history.Phantom, func(s script) {
			s.put("k", "a", 0)
			s.got("r", 0, "k", "a")
			s.got("r", 1, "k", "x")
		}},
		"two readers of one offset": {history.Disagree, func(s script) {
			a, b := s.begin("", "k", "a"), s.begin("", "k", "b")
			s.got("r1", 0, "k", "a")
			s.got("r2", 0, "k", "b")
			_, _ = a, b
		}},
		"an acknowledged record is lost in one shard while another holds that offset": {history.Lost, func(s script) {
			s.put("k1", "a", 0)
			s.End(s.begin("p", "k2", "b"), history.Answer{Outcome: history.Acked, Shard: other, Offset: 0, Generation: 1})
			s.Read("audit", history.Record{Shard: other, Offset: 0, Key: "k2", Digest: history.Sum([]byte("k2"), []byte("b"))})
			s.Audit("audit", shard, 0, 1)
			s.Audit("audit", other, 0, 1)
		}},
		"an offset unread in one shard while another holds it": {history.Skipped, func(s script) {
			s.End(s.begin("p", "k2", "b"), history.Answer{Outcome: history.Acked, Shard: other, Offset: 0, Generation: 1})
			s.Read("audit", history.Record{Shard: other, Offset: 0, Key: "k2", Digest: history.Sum([]byte("k2"), []byte("b"))})
			s.Audit("audit", shard, 0, 1)
		}},
		"a reader got what the audit did not find": {history.Vanished, func(s script) {
			s.end(s.begin("p", "k", "a"), history.Unknown)
			s.got("r", 0, "k", "a")
			s.Audit("audit", shard, 0, 0)
		}},
		"a reader got what the audit was led past": {history.Vanished, func(s script) {
			s.begin("", "k", "a")
			s.begin("", "k", "b")
			s.got("r", 0, "k", "a")
			s.Gap("audit", shard, 0, 1)
			s.got("audit", 1, "k", "b")
			s.Audit("audit", shard, 0, 2)
		}},
		"two readers of one record get other keys": {history.Disagree, func(s script) {
			s.put("k", "a", 0)
			s.got("r1", 0, "k", "a")
			s.Read("r2", history.Record{Shard: shard, Offset: 0, Key: "x", Digest: history.Sum([]byte("k"), []byte("a"))})
		}},
		"a producer's answers are out of its order": {history.ProducerOrder, func(s script) {
			first, second := s.begin("p", "k1", "a"), s.begin("p", "k2", "b")
			s.ack(second, 0, 1)
			s.ack(first, 1, 1)
		}},
		"what a producer gave up is stored behind what it sent later": {history.ProducerOrder, func(s script) {
			s.end(s.begin("p", "k", "a"), history.Unknown)
			s.put("k", "b", 0)
			s.got("r", 0, "k", "b")
			s.got("r", 1, "k", "a")
		}},
		"a later write of a key lies before an acknowledged one": {history.ShardOrder, func(s script) {
			s.ack(s.begin("p1", "k", "a"), 5, 1)
			s.ack(s.begin("p2", "k", "b"), 4, 1)
		}},
		"an unanswered write lies before one that was acknowledged before it began": {history.ShardOrder, func(s script) {
			s.ack(s.begin("p1", "k", "a"), 1, 1)
			s.begin("p2", "k", "b")
			s.got("r", 0, "k", "b")
			s.got("r", 1, "k", "a")
		}},
		"a generation that goes back along the log": {history.GenerationOrder, func(s script) {
			s.ack(s.begin("p", "k", "a"), 0, 2)
			s.ack(s.begin("p", "k", "b"), 1, 1)
		}},
		"an offset left out without a word": {history.Skipped, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.put("k", "c", 2)
			s.got("r", 0, "k", "a")
			s.got("r", 2, "k", "c")
		}},
		"a first record beyond the start": {history.Skipped, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.Start("r", shard, 0)
			s.got("r", 1, "k", "b")
		}},
		"a gap that begins beyond where the reader was": {history.Skipped, func(s script) {
			s.put("k", "a", 0)
			s.got("r", 0, "k", "a")
			s.Gap("r", shard, 3, 5)
		}},
		"an offset that an audit did not get and nobody else did": {history.Skipped, func(s script) {
			s.Audit("audit", shard, 4, 5)
		}},
		"a record again": {history.Repeated, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.got("r", 0, "k", "a")
			s.got("r", 1, "k", "b")
			s.got("r", 1, "k", "b")
		}},
		"a filtered reader goes back": {history.Repeated, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.Filtered("r")
			s.got("r", 1, "k", "b")
			s.got("r", 0, "k", "a")
		}},
		"a gap over what was delivered": {history.Repeated, func(s script) {
			s.put("k", "a", 0)
			s.got("r", 0, "k", "a")
			s.Gap("r", shard, 0, 2)
			s.Gap("r", shard, 2, 3)
		}},
		"a reader that resumes before where it was": {history.Repeated, func(s script) {
			s.put("k", "a", 0)
			s.got("r", 0, "k", "a")
			s.Start("r", shard, 0)
		}},
		"a reader that resumes beyond where it was": {history.Skipped, func(s script) {
			s.put("k", "a", 0)
			s.got("r", 0, "k", "a")
			s.Start("r", shard, 2)
		}},
		"two attempts with the same bytes": {history.Unusable, func(s script) {
			s.put("k", "a", 0)
			s.put("k", "a", 1)
		}},
		"a gap of nothing": {history.Unusable, func(s script) {
			s.Gap("r", shard, 3, 3)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := script{new(history.Recorder)}
			tc.bad(s)
			found := s.Check()
			if len(found) != 1 || found[0].Kind != tc.want {
				t.Fatalf("Check found %v, want one %q", found, tc.want)
			}
			if text := found[0].String(); !strings.Contains(text, tc.want.String()) || !strings.HasPrefix(text, orDash(tc.want)) {
				t.Errorf("violation reads %q, want its guarantee and kind in it", text)
			}
		})
	}
}

func orDash(k history.Kind) string {
	if id := k.Guarantee(); id != "" {
		return id
	}
	return "-"
}

// What a sound system may do must not be called a violation: a checker that cries wolf gets switched off.
func TestCheckAcceptsWhatIsAllowed(t *testing.T) {
	cases := map[string]func(s script){
		"nothing at all": func(script) {},
		"an unknown record is absent": func(s script) {
			s.end(s.begin("p", "k", "a"), history.Unknown)
			s.Audit("audit", shard, 0, 0)
		},
		"an unanswered record is there once, for two readers": func(s script) {
			s.begin("p", "k", "a")
			s.got("r1", 0, "k", "a")
			s.got("r2", 0, "k", "a")
		},
		"a refused record is absent": func(s script) {
			s.end(s.begin("p", "k", "a"), history.Refused)
			s.Audit("audit", shard, 0, 0)
		},
		"acknowledged and not read, but nobody audited": func(s script) { s.put("k", "a", 9) },
		"acknowledged, and retention has passed it": func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.got("audit", 1, "k", "b")
			s.Audit("audit", shard, 1, 2)
		},
		"two that overlapped, in either order": func(s script) {
			a, b := s.begin("p1", "k", "a"), s.begin("p2", "k", "b")
			s.ack(a, 1, 1)
			s.ack(b, 0, 1)
		},
		"a duplicate is answered by a later leader": func(s script) {
			a, b := s.begin("p", "k", "a"), s.begin("p", "k", "b")
			s.ack(b, 1, 1)
			s.End(a, history.Answer{Outcome: history.Acked, Shard: shard, Offset: 0, Generation: 5, Duplicate: true})
		},
		"shards beside each other": func(s script) {
			s.ack(s.begin("p", "k1", "a"), 0, 5)
			s.End(s.begin("p", "k2", "b"), history.Answer{Outcome: history.Acked, Shard: other, Offset: 0, Generation: 2})
			s.End(s.begin("p", "k2", "c"), history.Answer{Outcome: history.Acked, Shard: other, Offset: 1, Generation: 2})
			s.got("audit", 0, "k1", "a")
			for offset, value := range []string{"b", "c"} {
				s.Read("audit", history.Record{
					Shard: other, Offset: uint64(offset), Key: "k2", Digest: history.Sum([]byte("k2"), []byte(value)),
				})
			}
			s.Audit("audit", shard, 0, 1)
			s.Audit("audit", other, 0, 2)
		},
		"a weak acknowledgement is lost and its offset given again": func(s script) {
			s.End(s.begin("p", "k", "a"), history.Answer{Outcome: history.Acked, Shard: shard, Offset: 0, Generation: 1, Weak: true})
			s.ack(s.begin("p", "k", "b"), 0, 2)
			s.got("audit", 0, "k", "b")
			s.Audit("audit", shard, 0, 1)
		},
		"a client without idempotence stores twice": func(s script) {
			var ids []history.ID
			for _, value := range []string{"a", "b"} {
				ids = append(ids, s.Begin(history.Attempt{
					Producer: "p", Key: "k", Digest: history.Sum([]byte("k"), []byte(value)), MayRepeat: true,
				}))
			}
			s.ack(ids[1], 1, 1)
			s.ack(ids[0], 2, 1) // sent again behind the other
			s.got("r", 0, "k", "a")
			s.got("r", 1, "k", "b")
			s.got("r", 2, "k", "a")
		},
		"a reader that resumes where it was": func(s script) {
			s.put("k", "a", 0)
			s.put("k", "b", 1)
			s.Start("r", shard, 0)
			s.got("r", 0, "k", "a")
			s.Start("r", shard, 1)
			s.got("r", 1, "k", "b")
		},
		"a stated gap": func(s script) {
			for i, v := range []string{"a", "b", "c", "d"} {
				s.put("k", v, uint64(i))
			}
			s.Start("r", shard, 0)
			s.got("r", 0, "k", "a")
			s.Gap("r", shard, 1, 3)
			s.got("r", 3, "k", "d")
		},
		"a filter": func(s script) {
			s.put("k", "a", 0)
			s.put("other", "b", 1)
			s.put("k", "c", 2)
			s.Filtered("r")
			s.got("r", 0, "k", "a")
			s.got("r", 2, "k", "c")
		},
		"no key and no value are not empty ones": func(s script) {
			for i, kv := range [][2][]byte{{nil, nil}, {{}, nil}, {nil, {}}, {{}, {}}} {
				id := s.Begin(history.Attempt{Producer: "p", Digest: history.Sum(kv[0], kv[1])})
				s.ack(id, uint64(i), 1)
			}
		},
	}
	for name, good := range cases {
		t.Run(name, func(t *testing.T) {
			s := script{new(history.Recorder)}
			good(s)
			if found := s.Check(); len(found) != 0 {
				t.Errorf("Check found %v, want nothing", found)
			}
		})
	}
}

// record is what the model below stored.
type record struct {
	key, value string
	acked      bool // else two neighbors may change places and nobody can tell
}

// world runs random clients against one correct shard and records what they see; spoil may change what an audit gets.
func world(rng *rand.Rand, spoil func([]record) []record) *history.Recorder {
	rec := new(history.Recorder)
	s := script{rec}
	var log []record
	generation := uint64(1)
	type open struct {
		id  history.ID
		rec record
	}
	flight := map[int][]open{} // per producer, in order
	for step := range 300 {
		p := rng.IntN(4)
		switch rng.IntN(8) {
		case 0, 1, 2, 3:
			r := record{key: fmt.Sprintf("k%d", rng.IntN(5)), value: fmt.Sprintf("v%d", step)}
			flight[p] = append(flight[p], open{s.begin(fmt.Sprint(p), r.key, r.value), r})
		case 4, 5, 6:
			if len(flight[p]) == 0 {
				continue
			}
			o := flight[p][0]
			flight[p] = flight[p][1:]
			fate := rng.IntN(10)
			o.rec.acked = fate > 3
			if fate > 1 { // stored
				log = append(log, o.rec)
			}
			switch {
			case fate == 0:
				s.end(o.id, history.Refused)
			case fate <= 3:
				s.end(o.id, history.Unknown)
			default:
				s.ack(o.id, uint64(len(log)-1), generation)
			}
		case 7:
			generation++
		}
	}
	tail := len(log) / 2
	for i, r := range log[tail:] {
		s.got("live", uint64(tail+i), r.key, r.value)
	}
	log = spoil(log)
	for i, r := range log {
		s.got("audit", uint64(i), r.key, r.value)
	}
	s.Audit("audit", shard, 0, uint64(len(log)))
	return rec
}

func TestCheckOfRandomRuns(t *testing.T) {
	spoilers := map[string]func(rng *rand.Rand, log []record) []record{
		"drop one": func(rng *rand.Rand, log []record) []record {
			i := rng.IntN(len(log))
			return append(log[:i:i], log[i+1:]...)
		},
		"swap two": func(rng *rand.Rand, log []record) []record {
			i := rng.IntN(len(log) - 1)
			for !log[i].acked {
				i = rng.IntN(len(log) - 1)
			}
			log[i], log[i+1] = log[i+1], log[i]
			return log
		},
		"repeat one": func(rng *rand.Rand, log []record) []record {
			i := rng.IntN(len(log))
			return append(log[:i+1:i+1], log[i:]...)
		},
		"change one": func(rng *rand.Rand, log []record) []record {
			log[rng.IntN(len(log))].value += "?"
			return log
		},
		"cut the end": func(_ *rand.Rand, log []record) []record { return log[:len(log)-1] },
	}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		if found := world(rng, func(log []record) []record { return log }).Check(); len(found) != 0 {
			t.Fatalf("seed %d: Check of a correct run found %v", seed, found)
		}
		for name, spoil := range spoilers {
			rec := world(rng, func(log []record) []record { return spoil(rng, log) })
			if len(rec.Check()) == 0 {
				t.Errorf("seed %d: Check passed a run after %q", seed, name)
			}
		}
	}
}

func TestCountsTellWhatARunProved(t *testing.T) {
	s := script{new(history.Recorder)}
	s.put("k", "a", 0)
	s.end(s.begin("p", "k", "b"), history.Refused)
	s.begin("p", "k", "c")
	s.got("r", 0, "k", "a")
	byOutcome, reads := s.Counts()
	want := map[history.Outcome]int{history.Acked: 1, history.Refused: 1, history.Unknown: 1}
	if fmt.Sprint(byOutcome) != fmt.Sprint(want) || reads != 1 {
		t.Errorf("Counts = %v, %d, want %v, 1", byOutcome, reads, want)
	}
}
