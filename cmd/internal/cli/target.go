// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"margay.dev/cmd/internal/contexts"
	"margay.dev/cmd/internal/exit"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

const (
	scheme          = "margay://"
	schemeTLS       = "margay+tls://"
	defaultPort     = "7420"
	defaultHTTPPort = "7421"
)

// target is where a command goes and as whom: the context, overridden by environment and flags.
type target struct {
	control.Context
	token string // instead of the API key
}

// target finds out where to go. Everything wrong with it is misuse: nothing was tried yet.
func (a *app) target() (*target, error) {
	t := &target{token: a.global.token}
	c, err := a.chosenContext()
	if err != nil {
		return nil, err
	}
	if c != nil {
		t.Context = *c
	}
	if t.Tenant == "" {
		t.Tenant, t.Namespace = control.DefaultTenant, control.DefaultNamespace
	}
	if a.global.address != "" {
		if err := t.redirect(a.global.address); err != nil {
			return nil, err
		}
	}
	if len(t.Addresses) == 0 && t.HTTP == "" {
		return nil, &exit.Error{
			Err:  errors.New("no context is current and no --address is given, so there is nobody to talk to"),
			Code: exit.Usage,
			Do:   "start a node with `margay serve`, or choose one with `margay context use NAME`, --context or --address",
		}
	}
	if a.global.ca != "" {
		pem, err := os.ReadFile(a.global.ca)
		if err != nil {
			return nil, exit.Misuse("--ca: %w", err)
		}
		t.CA = string(pem)
	}
	return t, nil
}

// chosenContext returns nil when none is named and none is current.
func (a *app) chosenContext() (*control.Context, error) {
	name := a.global.context
	if strings.ContainsRune(name, os.PathSeparator) || strings.HasSuffix(name, ".yaml") {
		c, err := control.LoadContext(name)
		return c, a.contextError(name, err)
	}
	store, err := contexts.Locate(a.Getenv)
	if err != nil {
		if name == "" {
			return nil, nil // no home, no contexts; --address may still say everything
		}
		return nil, exit.Misuse("--context %s: %w", name, err)
	}
	if name == "" {
		if name, err = store.Current(); err != nil || name == "" {
			return nil, a.contextError("", err)
		}
	}
	c, err := store.Load(name)
	return c, a.contextError(name, err)
}

func (a *app) contextError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &exit.Error{
			Err: fmt.Errorf("context %q is not there: %w", name, err), Code: exit.NotThere,
			Do: "`margay context list` names those that are",
		}
	}
	return exit.Misuse("%w", err)
}

// redirect replaces the addresses by those of --address: brokers as HOST[:PORT], margay://HOST[:PORT]
// or, for TLS over TCP, margay+tls://HOST[:PORT]; the control plane as http(s)://HOST[:PORT], several with commas between.
//
// When no control plane is named and the brokers are not the context's own, there is none: with the context's, or
// with what a guess would find, a command would change one cluster while it was told another, and show it a key.
func (t *target) redirect(address string) error {
	var brokers []string
	var http, carried string
	for one := range strings.SplitSeq(address, ",") {
		if strings.HasPrefix(one, "http://") || strings.HasPrefix(one, "https://") {
			http = one
			continue
		}
		switch { // a part without a scheme has that of the part before it
		case strings.HasPrefix(one, schemeTLS):
			carried = schemeTLS
		case strings.HasPrefix(one, scheme):
			carried = ""
		case !strings.Contains(one, "://"):
			one = carried + one
		}
		hostPort, err := brokerAddress(one)
		if err != nil {
			return err
		}
		brokers = append(brokers, hostPort)
	}
	own := len(brokers) > 0 && !slices.ContainsFunc(brokers, func(b string) bool { return !t.has(b) })
	switch {
	case http != "":
		t.HTTP = http
	case !own:
		t.HTTP = ""
		t.APIKey = ""
	}
	if len(brokers) > 0 || http != "" {
		t.Addresses = brokers
	}
	return nil
}

// has says whether a broker is one of the context's, over whichever transport.
func (t *target) has(broker string) bool {
	hostPort := func(s string) string { return strings.TrimPrefix(strings.TrimPrefix(s, schemeTLS), scheme) }
	return slices.ContainsFunc(t.Addresses, func(a string) bool { return hostPort(a) == hostPort(broker) })
}

// brokerAddress is host:port, behind margay+tls:// if that is how it is to be reached.
func brokerAddress(s string) (string, error) {
	if rest, ok := strings.CutPrefix(s, schemeTLS); ok {
		hostPort, err := brokerAddress(scheme + rest)
		return schemeTLS + hostPort, err
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(s, scheme), "/")
	if strings.Contains(bare, "://") {
		return "", exit.Misuse("address %q: want margay://HOST:PORT or margay+tls://HOST:PORT for a broker, or http(s)://HOST:PORT for a control plane", s)
	}
	if _, _, err := net.SplitHostPort(bare); err == nil {
		return bare, nil
	}
	withPort := net.JoinHostPort(strings.Trim(bare, "[]"), defaultPort)
	if _, _, err := net.SplitHostPort(withPort); err != nil || bare == "" || strings.ContainsAny(bare, "/ ") {
		return "", exit.Misuse("address %q: want HOST:PORT", s)
	}
	return withPort, nil
}

// fullName resolves what a user typed for a stream.
func (t *target) fullName(name string) (tenant, namespace, stream string, err error) {
	tenant, namespace, stream, err = control.SplitName(name, t.Tenant, t.Namespace)
	if err != nil {
		return "", "", "", exit.Misuse("%w", err)
	}
	return tenant, namespace, stream, nil
}

// rest opens the control plane's REST API.
func (a *app) rest(t *target) (*control.Client, error) {
	if t.HTTP == "" {
		return nil, &exit.Error{
			Err:  errors.New("no control plane is named, and this command needs one"),
			Code: exit.Usage,
			Do:   "add it to --address, as in margay://HOST:7420,http://HOST:7421",
		}
	}
	cfg := t.Client()
	cfg.Token, cfg.Timeout, cfg.UserAgent = t.token, a.global.timeout, "margay/"+a.build().Version
	c, err := control.NewClient(cfg)
	if err != nil {
		return nil, exit.Misuse("%s", message(err))
	}
	return c, nil
}

// withLog runs what needs the REST API and one log's name.
func (a *app) withLog(name string, do func(c *control.Client, tenant, namespace, log string) error) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	tenant, namespace, log, err := t.fullName(name)
	if err != nil {
		return err
	}
	c, err := a.rest(t)
	if err != nil {
		return err
	}
	defer c.Close()
	return reached(do(c, tenant, namespace, log), t.HTTP)
}

// reached gives the failure to connect its remedy.
func reached(err error, where string) error {
	if errors.Is(err, code.Unavailable) {
		return exit.NoAnswer(err, where)
	}
	return err
}

// message is an error's text without the code and remedy that reports show in places of their own.
func message(err error) string {
	if e, ok := errors.AsType[*code.Error](err); ok && e.Message != "" {
		return e.Message
	}
	return err.Error()
}
