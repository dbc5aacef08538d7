// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// strictJSON reads bodies as the documents are written. The library and encoding/json would take "Shards" for shards, and
// the last of two fields of one name: a body must not mean two things, and a proxy that looks at it might see the other.
func strictJSON() huma.Format {
	return huma.Format{
		Marshal: huma.DefaultJSONFormat.Marshal,
		Unmarshal: func(b []byte, v any) error {
			if _, first := v.(*any); first { // the library reads a body twice, this way to check it
				if err := checkKeys(b); err != nil {
					return err
				}
			}
			return json.Unmarshal(b, v)
		},
	}
}

// checkKeys refuses a field that is there twice or not in lower case, and null, which the library takes for a field left out:
// a change would seem to be made. What is no JSON at all is left to the parser.
func checkKeys(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	var open []map[string]bool // the fields seen in each object around, nil for an array
	key := false               // whether the next token is a field's name
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // json.Unmarshal says it better
		}
		switch v := t.(type) {
		case nil:
			return errors.New("null says nothing: leave the field out, or give it a value")
		case json.Delim:
			switch v {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
			key = len(open) > 0 && open[len(open)-1] != nil
			continue
		case string:
			if key {
				seen := open[len(open)-1]
				if v != strings.ToLower(v) {
					return fmt.Errorf("field %.100q: names are in lower case", v)
				}
				if seen[v] {
					return fmt.Errorf("field %.100q is there twice", v)
				}
				seen[v] = true
				key = false
				continue
			}
		}
		key = len(open) > 0 && open[len(open)-1] != nil
	}
}
