// SPDX-License-Identifier: Apache-2.0

package arg_test

import (
	"errors"
	"testing"

	"margay.dev/cmd/internal/arg"
)

func TestKeyFrom(t *testing.T) {
	tests := []struct{ rule, value, want string }{
		{`re:\d+`, "order 42 of 7", "42"},
		{`re:id=(\w+)`, "x id=abc y", "abc"},
		{`re:^([^,]*)`, ",b", ""},
		{`re:(?:a|b)=(\d)`, "b=1", "1"},
		{`re:a:(b)`, "a:b", "b"}, // only the first colon belongs to the rule
		{`json:/id`, `{"id":"x"}`, "x"},
		{`json:/id`, ` {"id":12345678901234567890} `, "12345678901234567890"},
		{`json:/id`, `{"id":1.0}`, "1.0"},
		{`json:/ok`, `{"ok":false}`, "false"},
		{`json:/a/b`, `{"a":{"b":"c"}}`, "c"},
		{`json:/a/1/z`, `{"a":[0,{"z":"last"}]}`, "last"},
		{`json:/a~1b`, `{"a/b":"slash"}`, "slash"},
		{`json:/m~0n`, `{"m~n":"tilde"}`, "tilde"},
		{`json:/~01`, `{"~1":"order"}`, "order"}, // ~01 is "~1", not "/"
		{`json:/`, `{"":"empty name"}`, "empty name"},
		{`json:`, `"whole"`, "whole"},
		{`json:/id`, `{"id":"a\u00e9\"b"}`, "aé\"b"},
		{`json:/id`, `{"id":""}`, ""},
	}
	for _, test := range tests {
		key, err := arg.ParseKeyFrom(test.rule)
		if err != nil {
			t.Errorf("ParseKeyFrom(%q): %v", test.rule, err)
			continue
		}
		got, err := key([]byte(test.value))
		if err != nil || string(got) != test.want || got == nil {
			t.Errorf("%s of %s = %q, %v; want %q", test.rule, test.value, got, err, test.want)
		}
	}
}

func TestKeyFromFindsNothing(t *testing.T) {
	tests := []struct {
		rule, value string
		noKey       bool // otherwise the value itself is at fault
	}{
		{`re:\d`, "none here", true},
		{`re:a|(b)`, "a", true}, // matched, but not the group
		{`json:/id`, `{}`, true},
		{`json:/id`, `{"id":null}`, true},
		{`json:/0`, `[]`, true},
		{`json:/00`, `[1]`, true},
		{`json:/-`, `[1]`, true},
		{`json:/a/b`, `{"a":1}`, true},
		{`json:/id`, `{"id":{}}`, false},
		{`json:/id`, `{"id":[1]}`, false},
		{`json:/id`, `not json`, false},
		{`json:/id`, ``, false},
		{`json:/id`, `{"id":1} {"id":2}`, false},
	}
	for _, test := range tests {
		key, err := arg.ParseKeyFrom(test.rule)
		if err != nil {
			t.Fatalf("ParseKeyFrom(%q): %v", test.rule, err)
		}
		got, err := key([]byte(test.value))
		if err == nil || errors.Is(err, arg.ErrNoKey) != test.noKey {
			t.Errorf("%s of %s = %q, %v; want an error, no key = %t", test.rule, test.value, got, err, test.noKey)
		}
	}
}

func TestKeyFromRefusesRules(t *testing.T) {
	for _, rule := range []string{"", "re:", "re", "re:(", "re:(a)(b)", "json:id", "json:/a~", "json:/a~2b", "csv:1", "RE:x"} {
		if _, err := arg.ParseKeyFrom(rule); err == nil {
			t.Errorf("ParseKeyFrom(%q): want an error", rule)
		}
	}
}
