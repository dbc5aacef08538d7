// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"margay.dev/wire/code"
)

// meaning is what the page on frames says of the bytes of a vector.
type meaning struct {
	Form    string    `json:"form"`
	Kind    string    `json:"kind"`
	Session string    `json:"session"`
	Code    code.Code `json:"code"`
	Lane    uint64    `json:"lane"`
	Text    string    `json:"text"`
}

// decodeLink reads the bytes of a vector, and writes what it has read again.
func decodeLink(form string, raw []byte) (m meaning, again []byte, err error) {
	if form == "preface" {
		if len(raw) != prefaceSize {
			return m, nil, code.New(code.Protocol, "size")
		}
		p, err := parsePreface([prefaceSize]byte(raw))
		kind := map[prefaceKind]string{prefaceNew: "new", prefaceJoin: "join"}[p.kind]
		return meaning{Form: form, Kind: kind, Session: hex.EncodeToString(p.id[:]), Lane: p.lane}, p.append(nil), err
	}
	msg, err := readMessage(bytes.NewReader(raw))
	kind := map[messageKind]string{
		msgAccepted: "accepted", msgRefused: "refused", msgAlive: "alive", msgReset: "reset", msgStop: "stop", msgDone: "done", msgClose: "close",
	}[msg.kind]
	return meaning{Form: form, Kind: kind, Code: msg.code, Lane: msg.lane, Text: msg.text}, msg.append(nil), err
}

// TestLinkVectors: the bytes of prefaces and messages are frozen.
func TestLinkVectors(t *testing.T) {
	const dir = "../testdata/vectors/link"
	files, err := filepath.Glob(filepath.Join(dir, "*.hex"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		raw, err := hex.DecodeString(strings.TrimSpace(string(read(t, f))))
		if err != nil {
			t.Fatal(f, err)
		}
		var want meaning
		if err := json.Unmarshal(read(t, strings.TrimSuffix(f, ".hex")+".json"), &want); err != nil {
			t.Fatal(f, err)
		}
		got, again, err := decodeLink(want.Form, raw)
		if err != nil || got != want || !bytes.Equal(again, raw) {
			t.Errorf("%s: read as %+v, %v; written as %x", f, got, err, again)
		}
	}
	var refused []struct{ Form, Hex, Why string }
	if err := json.Unmarshal(read(t, filepath.Join(dir, "refused.json")), &refused); err != nil || len(refused) == 0 {
		t.Fatal(err)
	}
	for _, r := range refused {
		raw, err := hex.DecodeString(r.Hex)
		if err != nil {
			t.Fatal(r.Why, err)
		}
		if got, _, err := decodeLink(r.Form, raw); err == nil {
			t.Errorf("%s is read as %+v", r.Why, got)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
