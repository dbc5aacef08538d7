// SPDX-License-Identifier: Apache-2.0

// Package keyindex knows the newest record of every key of one shard and where it lies in the log: it is built from
// committed batches, in memory and in a snapshot file beside the log, and refuses to hold anything the log could not give
// again.
package keyindex
