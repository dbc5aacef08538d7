// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"margay.dev/wire/control"
)

// The types of values. Each is read from text, whether that stands in a file, a variable or a flag, and written as text
// that reads the same.
type (
	// Duration is a span of time, also in days.
	Duration time.Duration
	// Size is a number of bytes.
	Size int64
	// Address is host:port.
	Address string
	// Level is the least that is logged.
	Level = control.LogLevel
)

func (d Duration) String() string { return control.Duration(d).String() }

// UnmarshalText reads 30s, 12h or 7d.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := control.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

func (s Size) String() string { return control.FormatBytes(int64(s)) }

// UnmarshalText reads 1048576, 64MiB or 10GiB.
func (s *Size) UnmarshalText(b []byte) error {
	v, err := control.ParseBytes(string(b))
	*s = Size(v)
	return err
}

// UnmarshalText refuses what no socket could be bound to.
func (a *Address) UnmarshalText(b []byte) error {
	_, port, err := net.SplitHostPort(string(b))
	if err != nil {
		return fmt.Errorf("%.100q: want HOST:PORT", b)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%.100q: want a port from 0 (any free one) to 65535", b)
	}
	*a = Address(b)
	return nil
}

// orList writes "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// set reads text into a value.
func set(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *string:
		*p = text
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%.40q: want a whole number", text)
		}
		*p = n
	case *bool:
		switch text {
		case "true", "false":
			*p = text == "true"
		default:
			return fmt.Errorf("%.40q: want true or false", text)
		}
	default:
		return errors.New("a value of this type cannot be read") // a mistake of this package, found by any test
	}
	return nil
}

// kind says in a word what is read.
func kind(v reflect.Value) string {
	switch v.Interface().(type) {
	case Duration:
		return "duration"
	case Size:
		return "size"
	case Address:
		return "address"
	case Level:
		return "word"
	case bool:
		return "true or false"
	case int:
		return "number"
	}
	return "text"
}

// within holds a value to the bounds that its field names.
func (f *field) within() error {
	text := fmt.Sprint(f.value)
	if f.tag.Get("one") != "" {
		if slices.Contains(f.words(), text) {
			return nil
		}
		return fmt.Errorf("%.40q: want %s", text, orList(f.words()))
	}
	bound := func(name string) (reflect.Value, bool) {
		b := reflect.New(f.value.Type()).Elem()
		t := f.tag.Get(name)
		return b, t != "" && set(b, t) == nil // that it can be read is tested
	}
	if low, ok := bound("min"); ok && f.value.Int() < low.Int() {
		return fmt.Errorf("%s is below %v", text, low)
	}
	if high, ok := bound("max"); ok && f.value.Int() > high.Int() {
		return fmt.Errorf("%s is above %v", text, high)
	}
	return nil
}

// words are what a value may be, where that is a short list.
func (f *field) words() []string {
	if _, ok := reflect.TypeAssert[Level](f.value); ok {
		return control.LogLevels()
	}
	if one := f.tag.Get("one"); one != "" {
		return strings.Split(one, ",")
	}
	return nil
}
