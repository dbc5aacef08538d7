// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestTransportOfAddresses(t *testing.T) {
	addresses := []string{"a:1", "margay+tls://b:2", "margay://c:3"}
	for transport, want := range map[string]string{
		"":            "margay://a:1,margay+tls://b:2,margay://c:3",
		transportQUIC: "margay://a:1,margay://b:2,margay://c:3",
		transportTLS:  "margay+tls://a:1,margay+tls://b:2,margay+tls://c:3",
	} {
		if got := over(transport, addresses); got != want {
			t.Errorf("transport %q: %s: want %s", transport, got, want)
		}
	}
}
