// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/wire/code"
)

// plane is a control plane that hands out tokens and answers the rest as a test says.
type plane struct {
	*httptest.Server
	exchanges atomic.Int32
	good      atomic.Value // the token that is good now
	answer    http.HandlerFunc
}

func newPlane(t *testing.T, answer http.HandlerFunc) *plane {
	t.Helper()
	p := &plane{answer: answer}
	p.good.Store("t1")
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/token" {
			n := p.exchanges.Add(1)
			p.good.Store(fmt.Sprint("t", n))
			_ = json.NewEncoder(w).Encode(TokenResponse{Token: fmt.Sprint("t", n), ExpiresAt: time.Now().Add(15 * time.Minute)})
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+p.good.Load().(string) {
			problem(w, code.New(code.Unauthenticated, "no"))
			return
		}
		p.answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func problem(w http.ResponseWriter, e *code.Error, details ...Problem) {
	p := NewProblem(e, "r1", details...)
	w.Header().Set("Content-Type", ProblemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

func newClient(t *testing.T, cfg ClientConfig) *Client {
	t.Helper()
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestClientExchangesItsKeyOnce(t *testing.T) {
	p := newPlane(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/tenants/t/namespaces/n/streams/orders" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "orders", "max_age": "7d", "from_a_newer_server": true})
	})
	c := newClient(t, ClientConfig{Address: p.URL + "/", APIKey: "mgk_x"})
	for range 3 {
		s, err := c.Stream(t.Context(), "t", "n", "orders")
		if err != nil || s.Name != "orders" || time.Duration(s.MaxAge) != 7*day {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if n := p.exchanges.Load(); n != 1 {
		t.Errorf("%d exchanges", n)
	}
	p.good.Store("rotated") // a token that is not good any more is exchanged, once
	if _, err := c.Stream(t.Context(), "t", "n", "orders"); err != nil || p.exchanges.Load() != 2 {
		t.Errorf("%v after %d exchanges", err, p.exchanges.Load())
	}
}

func TestClientErrorsAreTyped(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		code   code.Code
		class  code.Class
		say    string
	}{
		{
			"not found", func(w http.ResponseWriter, _ *http.Request) { problem(w, code.New(code.NotFound, "no such stream")) },
			code.NotFound, code.ClassFatal, "no such stream",
		},
		{"all problems", func(w http.ResponseWriter, _ *http.Request) {
			problem(w, code.New(code.BadRequest, "no sense"), Problem{"shards", "too few"}, Problem{"ack", "unknown"})
		}, code.BadRequest, code.ClassFatal, "no sense: shards: too few; ack: unknown [request r1]"},
		{"retry", func(w http.ResponseWriter, _ *http.Request) {
			problem(w, code.New(code.Overloaded, "wait").Retry(2500*time.Millisecond))
		}, code.Overloaded, code.ClassRefused, "wait"},
		{"a newer server", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ProblemType)
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"code":"brand_new","class":"refused","detail":"later"}`)
		}, code.Conflict, code.ClassRefused, "later"},
		{"a proxy", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>upstream\nfailed")
		}, code.Unavailable, code.ClassUnknown, "502"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusTemporaryRedirect)
		}, code.Internal, code.ClassUnknown, "307"},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, code.Internal, code.ClassUnknown, "no document"},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"name"`)
		}, code.OutcomeUnknown, code.ClassUnknown, "lost"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, code.OutcomeUnknown, code.ClassUnknown, "lost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClient(t, ClientConfig{Address: newPlane(t, tc.answer).URL, Token: "t1"})
			_, err := c.CreateStream(t.Context(), "t", "n", StreamSpec{Name: "x"})
			var e *code.Error
			if !errors.As(err, &e) || e.Code != tc.code || e.Class != tc.class || !strings.Contains(e.Message, tc.say) {
				t.Fatalf("%v", err)
			}
			if tc.name == "retry" && e.RetryAfter != 2500*time.Millisecond {
				t.Errorf("retry after %v", e.RetryAfter)
			}
		})
	}
}

func TestClientDeadlines(t *testing.T) {
	release := make(chan struct{})
	p := newPlane(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	c := newClient(t, ClientConfig{Address: p.URL, Token: "t1", Timeout: 50 * time.Millisecond})
	var e *code.Error
	if err := c.DeleteStream(t.Context(), "t", "n", "x", 0); !errors.As(err, &e) || e.Code != code.Timeout || e.Class != code.ClassUnknown {
		t.Errorf("a change without an answer: %v", err)
	}
	if _, err := c.Stream(t.Context(), "t", "n", "x"); !errors.As(err, &e) || e.Code != code.Timeout || e.Class != code.ClassRefused {
		t.Errorf("a read without an answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Stream(ctx, "t", "n", "x"); !errors.Is(err, code.Cancelled) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestClientThatReachesNobody(t *testing.T) {
	p := httptest.NewServer(http.NotFoundHandler())
	p.Close()
	c := newClient(t, ClientConfig{Address: p.URL, Token: "t1"})
	var e *code.Error
	if err := c.DeleteStream(t.Context(), "t", "n", "x", 0); !errors.As(err, &e) || e.Code != code.Unavailable || e.Class != code.ClassRefused {
		t.Errorf("%v", err)
	}
	if _, err := newClient(t, ClientConfig{Address: p.URL}).Stream(t.Context(), "t", "n", "x"); !errors.Is(err, code.Unauthenticated) {
		t.Errorf("without a credential: %v", err)
	}
}

func TestClientChecksTheServer(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"name":"x"}`) }))
	defer s.Close()
	s.Config.ErrorLog = nil
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if _, err := newClient(t, ClientConfig{Address: s.URL, Token: "t", CA: ca}).Stream(t.Context(), "t", "n", "x"); err != nil {
		t.Error(err)
	}
	var e *code.Error
	_, err := newClient(t, ClientConfig{Address: s.URL, Token: "t"}).Stream(t.Context(), "t", "n", "x")
	if !errors.As(err, &e) || e.Class != code.ClassFatal || !strings.Contains(e.Message, "not the one of this context") {
		t.Errorf("a server of another CA: %v", err)
	}
}

func TestClientRefusesConfigurations(t *testing.T) {
	for _, cfg := range []ClientConfig{
		{},
		{Address: "127.0.0.1:7421"},
		{Address: "ftp://h"},
		{Address: "http://"},
		{Address: "http://192.0.2.1:7421"},
		{Address: "http://host.example"},
		{Address: "https://h", CA: []byte("no certificate")},
	} {
		if _, err := NewClient(cfg); !errors.Is(err, code.BadRequest) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, cfg := range []ClientConfig{
		{Address: "http://localhost:7421"}, {Address: "http://[::1]:7421"}, {Address: "https://host.example"}, {Address: "http://host.example", AllowPlain: true},
	} {
		if _, err := NewClient(cfg); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
