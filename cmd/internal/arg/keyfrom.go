// SPDX-License-Identifier: Apache-2.0

package arg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// KeyFunc takes a record's key out of its value. The key may alias the value.
type KeyFunc func(value []byte) ([]byte, error)

// ErrNoKey says that a value holds nothing where the rule looks. It is an error and not "no key":
// a record without its key would land in another shard, out of order with its like.
var ErrNoKey = errors.New("no key found")

// ParseKeyFrom reads the value of --key-from: "re:REGEXP" takes the first group (the whole match when
// there is no group), "json:/POINTER" takes the string, number or boolean that the pointer names.
func ParseKeyFrom(s string) (KeyFunc, error) {
	kind, rule, _ := strings.Cut(s, ":")
	switch kind {
	case "re":
		return fromRegexp(rule)
	case "json":
		return fromPointer(rule)
	}
	return nil, fmt.Errorf("key rule %q: want re:REGEXP or json:/POINTER", s)
}

func fromRegexp(rule string) (KeyFunc, error) {
	if rule == "" {
		return nil, errors.New(`key rule "re:": the expression is empty`)
	}
	re, err := regexp.Compile(rule)
	if err != nil {
		return nil, fmt.Errorf("key rule re:%s: %w", rule, err)
	}
	if re.NumSubexp() > 1 {
		return nil, fmt.Errorf("key rule re:%s: has %d groups, want at most one (write (?:...) for the others)", rule, re.NumSubexp())
	}
	group := re.NumSubexp()
	return func(value []byte) ([]byte, error) {
		at := re.FindSubmatchIndex(value)
		if at == nil || at[2*group] < 0 {
			return nil, fmt.Errorf("re:%s: %w", rule, ErrNoKey)
		}
		return value[at[2*group]:at[2*group+1]], nil
	}, nil
}

// fromPointer follows RFC 6901.
func fromPointer(rule string) (KeyFunc, error) {
	if rule != "" && rule[0] != '/' {
		return nil, fmt.Errorf("key rule json:%s: a pointer starts with /", rule)
	}
	var path []string
	if rule != "" {
		path = strings.Split(rule[1:], "/")
	}
	for i, step := range path {
		plain, err := unescapeStep(step)
		if err != nil {
			return nil, fmt.Errorf("key rule json:%s: %w", rule, err)
		}
		path[i] = plain
	}
	return func(value []byte) ([]byte, error) {
		key, err := follow(value, path)
		if err != nil {
			return nil, fmt.Errorf("json:%s: %w", rule, err)
		}
		return key, nil
	}, nil
}

func unescapeStep(step string) (string, error) {
	for i := range len(step) {
		if step[i] == '~' && (i+1 == len(step) || step[i+1] != '0' && step[i+1] != '1') {
			return "", errors.New("~ must be followed by 0 (for ~) or 1 (for /)")
		}
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(step), nil
}

func follow(value []byte, path []string) ([]byte, error) {
	if !json.Valid(value) {
		return nil, errors.New("the value is not JSON")
	}
	at := json.RawMessage(bytes.TrimSpace(value))
	for _, step := range path {
		next, err := descend(at, step)
		if err != nil {
			return nil, err
		}
		at = next
	}
	switch at[0] {
	case '"':
		var text string
		if err := json.Unmarshal(at, &text); err != nil {
			return nil, err
		}
		return []byte(text), nil
	case '{', '[':
		return nil, errors.New("the pointer names an object or array, want a string, number or boolean")
	case 'n':
		return nil, fmt.Errorf("the pointer names null: %w", ErrNoKey)
	}
	// Numbers keep the digits they were written with: 1.0 and 1 stay different keys, and no large
	// number is rounded.
	return at, nil
}

func descend(at json.RawMessage, step string) (json.RawMessage, error) {
	switch at[0] {
	case '{':
		var object map[string]json.RawMessage
		if err := json.Unmarshal(at, &object); err != nil {
			return nil, err
		}
		next, ok := object[step]
		if !ok {
			return nil, fmt.Errorf("no member %q: %w", step, ErrNoKey)
		}
		return next, nil
	case '[':
		var array []json.RawMessage
		if err := json.Unmarshal(at, &array); err != nil {
			return nil, err
		}
		i, err := strconv.ParseUint(step, 10, 31)
		if err != nil || step != strconv.FormatUint(i, 10) || int(i) >= len(array) {
			return nil, fmt.Errorf("no element %q: %w", step, ErrNoKey)
		}
		return array[i], nil
	}
	return nil, fmt.Errorf("nothing below %q: %w", step, ErrNoKey)
}
