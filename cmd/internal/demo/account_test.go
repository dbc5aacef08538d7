// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"testing"

	"margay.dev/client"
)

func record(shard uint32, offset uint64, number int, value string) client.Record {
	return client.Record{Shard: shard, Offset: offset, Value: []byte(value), Headers: numbered(number)}
}

// A demo that cannot fail proves nothing: each kind of damage must show.
func TestAudit(t *testing.T) {
	lines := []string{"a", "b", "b"}
	whole := []client.Record{record(0, 0, 0, "a"), record(1, 0, 1, "b"), record(0, 1, 2, "b")}
	tests := []struct {
		name string
		read []client.Record
		want finding
	}{
		{"all there, with twins", whole, finding{found: 3}},
		{"one gone", whole[:2], finding{found: 2, missing: 1}},
		{"one twice", append(whole[:3:3], record(0, 2, 2, "b")), finding{found: 3, duplicates: 1, extra: 1}},
		{"one damaged", append(whole[:2:2], record(0, 1, 2, "B")), finding{found: 2, different: 1}},
		{"two swapped", append(whole[:1:1], record(1, 0, 2, "b"), record(0, 1, 1, "b")), finding{found: 1, different: 2}},
		{"no number", append(whole[:2:2], client.Record{Offset: 1, Value: []byte("b")}), finding{found: 2, different: 1}},
		{"nothing", nil, finding{missing: 3}},
	}
	for _, test := range tests {
		acc := newAccount(lines)
		for i, rec := range whole {
			if err := acc.promise(i, client.Ack{Shard: rec.Shard, Offset: rec.Offset}); err != nil {
				t.Fatal(err)
			}
		}
		u := newAudit(acc)
		for _, rec := range test.read {
			u.add(rec)
		}
		got := u.close()
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestTwoLinesAtOnePlace(t *testing.T) {
	acc := newAccount([]string{"a", "b"})
	if err := acc.promise(0, client.Ack{Offset: 7}); err != nil {
		t.Fatal(err)
	}
	if err := acc.promise(1, client.Ack{Offset: 7}); err == nil {
		t.Error("two lines acknowledged at one place: want an error")
	}
}
