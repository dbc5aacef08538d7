// SPDX-License-Identifier: Apache-2.0

package work

import (
	"strings"

	"margay.dev/cmd/internal/output"
)

// Variable is NAME=VALUE as an environment can hold it: a value that is no text, or has a zero byte, is base64, and
// NAME_ENCODING says so.
func Variable(name string, value []byte) []string {
	text, encoding := output.Encode(value)
	if encoding == output.EncodingText && strings.IndexByte(text, 0) >= 0 {
		text, encoding = output.Base64(value), output.EncodingBase64
	}
	if encoding == output.EncodingText {
		return []string{name + "=" + text}
	}
	return []string{name + "=" + text, name + "_ENCODING=" + encoding}
}

// HeaderName is the variable that holds a header: in capitals, with _ for what is neither a letter nor a digit.
func HeaderName(header string) string {
	return "MARGAY_HEADER_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, header)
}

// Without is an environment less the variables of an earlier message: a worker may be run by another.
func Without(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if !ofMessage[name] && !strings.HasPrefix(name, "MARGAY_HEADER_") {
			out = append(out, kv)
		}
	}
	return out
}

// ofMessage are the variables of a message, but its headers.
var ofMessage = map[string]bool{
	"MARGAY_QUEUE": true, "MARGAY_GROUP": true, "MARGAY_ID": true, "MARGAY_SHARD": true, "MARGAY_OFFSET": true, "MARGAY_ATTEMPT": true,
	"MARGAY_DEDUP_ID": true, "MARGAY_KEY": true, "MARGAY_KEY_ENCODING": true, "MARGAY_APPEND_TIME": true, "MARGAY_HEADERS": true,
}
