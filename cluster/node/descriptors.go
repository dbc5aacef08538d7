// SPDX-License-Identifier: Apache-2.0

package node

// Descriptors that are not logs: HTTP connections, flushes under way (a directory and a new segment each),
// sockets, the catalog, what the runtime needs.
const (
	descriptorsOther = 64
	httpConnections  = 256
	minHTTP          = 16
	minLanes         = 16
)

// descriptors divides what the process may have open. Each part is a bound, so that no one of them can take
// another's last descriptor: a log that cannot roll its segment is worse than one that is not opened (OP-10).
type descriptors struct {
	limit, logs, sealed, http, lanes int // 0 for no bound; lanes are TCP connections of clients
}

// divide takes the limit of the process, how many are wanted for sealed segments, 0 for as many as is wise, and whether
// clients come over TCP too.
func divide(limit, sealed int, lanes bool) descriptors {
	if limit <= 0 {
		return descriptors{sealed: sealed, http: httpConnections}
	}
	if sealed <= 0 {
		sealed = min(256, limit/8)
	}
	d := descriptors{limit: limit, sealed: sealed, http: min(httpConnections, max(minHTTP, limit/8))}
	if lanes {
		d.lanes = max(minLanes, limit/8)
	}
	d.logs = max(8, limit-d.sealed-d.http-d.lanes-descriptorsOther)
	return d
}
