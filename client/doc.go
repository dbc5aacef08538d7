// SPDX-License-Identifier: Apache-2.0

// Package client publishes and subscribes to streams, reads and writes caches, and pushes and consumes messages of queues of a
// Margay cluster over QUIC; it touches the network and, in ConnectNamed only, context files, and refuses to claim more about a
// record than it knows.
//
// A Client holds up to five connections (requests, publishing, subscribing, watching, consuming), each made when first needed and
// made again when lost. Everything is safe for concurrent use. No goroutine is left after Close.
//
// Every error is or wraps an *Error. Its class is the contract: refused (certainly not applied, may succeed later),
// fatal (certainly not applied, fails again), unknown (may be applied).
package client
