// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

func TestAPIKeyIsExchanged(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	b.Script(func(s *fakebroker.Script) {
		s.Auth = func(token string) (time.Time, error) {
			if token != "jwt" {
				return time.Time{}, code.New(code.Unauthenticated, "who")
			}
			return time.Now().Add(time.Hour), nil
		}
	})
	var exchanges atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchanges.Add(1)
		var req control.TokenRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		if req.APIKey != "mgk_good" {
			w.Header().Set("Content-Type", control.ProblemType)
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(control.NewProblem(code.New(code.Unauthenticated, "no such key"), ""))
			return
		}
		_ = json.NewEncoder(w).Encode(control.TokenResponse{Token: "jwt", ExpiresAt: time.Now().Add(time.Hour)})
	}))
	defer srv.Close()

	c, err := client.Connect(within(t), b.Address(), client.WithCA(b.CA), client.WithAPIKey(srv.URL, "mgk_good"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Publisher("orders").Publish(within(t), client.Record{}); err != nil {
		t.Fatal(err)
	}
	if n := exchanges.Load(); n != 1 {
		t.Errorf("%d exchanges for two connections, want 1", n)
	}
	_, err = client.Connect(within(t), b.Address(), client.WithCA(b.CA), client.WithAPIKey(srv.URL, "mgk_bad"))
	wantError(t, err, client.ErrUnauthenticated, client.Fatal)

	srv.CloseClientConnections()
	_, err = client.Connect(within(t), b.Address(), client.WithCA(b.CA), client.WithAPIKey("http://example.com", "mgk_good"))
	wantError(t, err, client.ErrBadRequest, client.Fatal)
}
