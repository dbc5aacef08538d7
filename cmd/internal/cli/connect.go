// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"margay.dev/client"
	"margay.dev/cmd/internal/exit"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// connect opens the data plane within the timeout. The caller closes the client.
func (a *app) connect(ctx context.Context, t *target, options ...client.Option) (*client.Client, error) {
	if len(t.Addresses) == 0 {
		return nil, &exit.Error{
			Err: errors.New("the context names no broker, and this command needs one"), Code: exit.Usage,
			Do: "add it to --address, as in margay://HOST:7420,http://HOST:7421",
		}
	}
	if t.HTTP == "" && t.APIKey == "" && t.token == "" {
		return nil, &exit.Error{
			Err: errors.New("no control plane is named for that broker, and no token"), Code: exit.Usage,
			Do: "name both, as in --address margay://HOST:7420,http://HOST:7421, or use that node's context: --context DATA/context.yaml",
		}
	}
	address := strings.Join(withSchemes(t.Addresses), ",")
	where := t.Context
	if t.token != "" {
		where.APIKey = "" // with both, it would not be clear as whom the command goes
		options = append(options, client.WithToken(t.token))
	}
	options = append([]client.Option{client.WithContext(where)}, options...)
	ctx, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	c, err := client.Connect(ctx, address, options...)
	if err != nil {
		return nil, exit.NoAnswer(err, address)
	}
	return c, nil
}

// withSchemes are addresses that each say how they are reached.
func withSchemes(addresses []string) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		if out[i] = a; !strings.Contains(a, "://") {
			out[i] = scheme + a
		}
	}
	return out
}

// connectTo opens a connection for a stream as a user typed it; full names it to the broker, name to the user.
func (a *app) connectTo(ctx context.Context, stream string, options ...client.Option) (c *client.Client, full, name string, err error) {
	t, err := a.target()
	if err != nil {
		return nil, "", "", err
	}
	tenant, namespace, name, err := t.fullName(stream)
	if err != nil {
		return nil, "", "", err
	}
	c, err = a.connect(ctx, t, options...)
	return c, control.FullName(tenant, namespace, name), name, err
}

// aboutStream says which stream an error is about, and that one that is not there can be made.
func aboutStream(err error, name string) error { return aboutPreset(control.PresetStream, err, name) }

func aboutPreset(preset string, err error, name string) *exit.Error {
	f := &exit.Error{Err: fmt.Errorf("%s %s: %w", preset, name, err)}
	if errors.Is(err, code.NotFound) {
		f.Do = createFirst(preset, name)
	}
	return f
}

func createFirst(preset, name string) string {
	return "check the name with `margay " + preset + " list`, or make it: `margay " + preset + " create " + name + "`"
}
