// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// completedKeys is how many keys a shell is offered.
const completedKeys = 100

// keyed is a cache that a command uses: the handle, and its name as the user typed it.
type keyed struct {
	*client.Cache
	c          *client.Client
	full, name string
}

// cacheWithin connects to a cache and runs do, which must be done within --timeout.
func (a *app) cacheWithin(cmd *cobra.Command, cache string, do func(ctx context.Context, k *keyed) error) error {
	k, err := a.openCache(cmd.Context(), cache, client.WithDeliveryTimeout(min(a.global.timeout, client.MaxDeliveryTimeout)))
	if err != nil {
		return err
	}
	defer k.c.Close()
	timeout := a.global.timeout
	if cmd.Annotations[effectAnnotation] != "" {
		timeout += answerGrace // the client's own end of a write says more: whether it is stored, and why it was not
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	return do(ctx, k)
}

// openCache connects to a cache. The caller closes the client.
func (a *app) openCache(ctx context.Context, cache string, options ...client.Option) (*keyed, error) {
	c, full, name, err := a.connectTo(ctx, cache, options...)
	if err != nil {
		return nil, err
	}
	return &keyed{c.Cache(full), c, full, name}, nil
}

// about says which cache an error is about.
func (k *keyed) about(err error) error { return aboutPreset(control.PresetCache, err, k.name) }

// aboutKey says which key an error is about. That there is none is not that there is no cache, which the code alone does
// not tell.
func (k *keyed) aboutKey(ctx context.Context, err error, key string) error {
	switch {
	case errors.Is(err, code.NotFound):
		if _, gone := k.c.Info(ctx, k.full); gone != nil {
			return k.about(gone)
		}
		return k.absent(1, key)
	case errors.Is(err, code.Conflict):
		return k.conflict(err, key)
	case errors.Is(err, code.TooMany):
		f := aboutPreset(control.PresetCache, err, k.name)
		f.Do = "delete keys, or allow more: `margay cache update " + k.name + " --max-keys N`, and storage.key_memory of the node"
		return f
	}
	return k.about(err)
}

// absent is the error of keys that are not there, of some that were asked for.
func (k *keyed) absent(asked int, keys ...string) error {
	shown := make([]string, len(keys))
	for i, key := range keys {
		shown[i] = output.Show([]byte(key))
	}
	f := &exit.Error{
		Code: exit.NotThere, Do: "`margay cache keys " + k.name + "` lists those that are",
		Details: struct {
			Missing []string `json:"missing"`
		}{shown},
	}
	if len(keys) == 1 {
		f.Err = code.New(code.NotFound, "cache %s has no key %.200s", k.name, shown[0])
	} else {
		f.Err = code.New(code.NotFound, "cache %s has not %d of %d keys: %.1000s", k.name, len(keys), asked, strings.Join(shown, ", "))
	}
	return f
}

// conflict says which version the key has instead of the one that was to be.
func (k *keyed) conflict(err error, key string) error {
	version, _, ok := client.CurrentVersion(err)
	if !ok {
		return k.about(err)
	}
	f := &exit.Error{
		Err: code.New(code.Conflict, "cache %s: key %.200s has version %d", k.name, output.Show([]byte(key)), version),
		Do:  fmt.Sprintf("look at it with `margay get %s %s`, and decide again with --if-version %d", k.name, pasted(key), version),
		Details: struct {
			Version uint64 `json:"version"`
		}{version},
	}
	if version == 0 {
		f.Err = code.New(code.Conflict, "cache %s: key %.200s is not there", k.name, output.Show([]byte(key)))
		f.Do = "decide again with --if-absent"
	}
	return f
}

// pasted is a key as a shell takes it, or the word for one.
func pasted(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-:@", r)
	}) || strings.HasPrefix(key, "-") {
		return "KEY"
	}
	return key
}

// writtenView is an acknowledged write of a key in JSON.
type writtenView struct {
	Key         string `json:"key"`
	KeyEncoding string `json:"key_encoding,omitempty"`
	Sum         *int64 `json:"sum,omitempty"`
	Deleted     bool   `json:"deleted,omitempty"`
	Version     uint64 `json:"version"`
}

func viewWritten(key string, version uint64) writtenView {
	v := writtenView{Version: version}
	v.Key, v.KeyEncoding = encodeKey(key)
	return v
}

// encodeKey leaves out the encoding of text, which nearly every key is.
func encodeKey(key string) (text, encoding string) {
	if text, encoding = output.Encode([]byte(key)); encoding == output.EncodingText {
		encoding = ""
	}
	return text, encoding
}

// keyView is what a key has, in JSON.
type keyView struct {
	Key         string       `json:"key"`
	KeyEncoding string       `json:"key_encoding,omitempty"`
	Version     uint64       `json:"version"`
	Generation  uint64       `json:"generation,omitempty"`
	Headers     []headerView `json:"headers,omitempty"`
	Value       *string      `json:"value,omitempty"` // not in a list of keys
	Encoding    string       `json:"encoding,omitempty"`
	AppendTime  time.Time    `json:"append_time,omitzero"`
	Expires     time.Time    `json:"expires,omitzero"`
}

func viewKey(e *client.Entry, withValue bool) keyView {
	v := keyView{Version: e.Version, Generation: e.Generation, AppendTime: utc(e.AppendTime), Expires: utc(e.Expires)}
	v.Key, v.KeyEncoding = encodeKey(e.Key)
	if e.Generation == 0 { // a list of keys does not read what the log has of them
		v.AppendTime = time.Time{}
	}
	if !withValue {
		return v
	}
	value, encoding := output.Encode(e.Value)
	v.Value, v.Encoding = &value, encoding
	for _, h := range e.Headers {
		value, encoding := output.Encode(h.Value)
		v.Headers = append(v.Headers, headerView{h.Key, value, encoding})
	}
	return v
}

// textEntry is an entry on one line: version, key, value, and how long it still lives.
func (a *app) textEntry(e *client.Entry) string {
	line := a.Dim(fmt.Sprint(e.Version)) + "\t" + a.Bold(output.Show([]byte(e.Key))) + "\t" + output.Show(e.Value)
	if e.Expires.IsZero() {
		return line
	}
	return line + "\t" + a.Dim("("+lifeLeft(time.Until(e.Expires))+" left)")
}

// lifeLeft is rounded up: what is left is never shown as nothing.
func lifeLeft(d time.Duration) string {
	unit := time.Second
	if d <= time.Second {
		unit = time.Millisecond
	}
	return control.Duration(max((d + unit - 1).Truncate(unit), unit)).String()
}

// completeKeys offers the caches, and below one of them its keys.
func (a *app) completeKeys(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeLogs(caches())(cmd, args, word)
	}
	const none = cobra.ShellCompDirectiveNoFileComp
	if a.readEnvironment(cmd) != nil {
		return nil, none
	}
	a.global.timeout = min(a.global.timeout, time.Second)
	var keys []string
	err := a.cacheWithin(cmd, args[0], func(ctx context.Context, k *keyed) error {
		for e, err := range k.List(ctx, client.Prefix(word), client.KeysOnly()) {
			if err != nil || len(keys) == completedKeys {
				return err
			}
			keys = append(keys, e.Key)
		}
		return nil
	})
	if err != nil {
		return nil, none
	}
	return keys, none
}

// dashed explains why what begins with a dash is taken for a flag.
func dashed(what, example string) func(*cobra.Command, error) error {
	return func(_ *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && strings.Trim(unknown.GetSpecifiedName(), "0123456789") == "" {
			return &exit.Error{Err: err, Code: exit.Usage, Do: "put -- before " + what + ": `" + example + "`"}
		}
		return err
	}
}
