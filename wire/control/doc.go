// SPDX-License-Identifier: Apache-2.0

// Package control holds the documents that the control plane, brokers and clients exchange, with their limits and
// defaults, and a thin client for the REST API; it may open HTTP connections and the files it is given a path for, and
// refuses a document with an unknown field or a value that makes no sense, naming all of its problems at once.
package control
