// SPDX-License-Identifier: Apache-2.0

package node

// Descriptors that are not logs: HTTP connections, flushes under way (a directory and a new segment each),
// sockets, the catalog, what the runtime needs.
const (
	descriptorsOther = 64
	httpConnections  = 256
	minHTTP          = 16
)

// descriptors divides what the process may have open. Each part is a bound, so that no one of them can take
// another's last descriptor: a log that cannot roll its segment is worse than one that is not opened (OP-10).
type descriptors struct {
	limit, logs, sealed, http int // 0 for no bound
}

// divide takes the limit of the process and how many are wanted for sealed segments, 0 for as many as is wise.
func divide(limit, sealed int) descriptors {
	if limit <= 0 {
		return descriptors{sealed: sealed, http: httpConnections}
	}
	if sealed <= 0 {
		sealed = min(256, limit/8)
	}
	d := descriptors{limit: limit, sealed: sealed, http: min(httpConnections, max(minHTTP, limit/8))}
	d.logs = max(8, limit-d.sealed-d.http-descriptorsOther)
	return d
}
