// SPDX-License-Identifier: Apache-2.0

package output

import (
	"encoding/base64"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// The encodings of bytes inside JSON.
const (
	EncodingText   = "text"
	EncodingBase64 = "base64"
)

// Encode writes bytes as a JSON string can hold them and names how: text when they are UTF-8, base64
// otherwise, so that no byte is ever replaced.
func Encode(b []byte) (value, encoding string) {
	if utf8.Valid(b) {
		return string(b), EncodingText
	}
	return Base64(b), EncodingBase64
}

// Base64 writes bytes as Encode writes those that are no text.
func Base64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// Show writes bytes on one line for a person. Whatever a terminal could take for a command is quoted:
// a record comes from somebody else and must not move the cursor or set the window's title.
func Show(b []byte) string {
	s := string(b)
	if !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) && r != '\t' {
			return strconv.Quote(s)
		}
	}
	return s
}
