// SPDX-License-Identifier: Apache-2.0

// Package batch holds the one layout a record has from producer to disk to follower to subscriber: it
// builds, checks and reads batches in memory and refuses every byte that the format page does not define.
//
// The format is docs/formats/batch.md. The package touches no file, socket, clock or goroutine.
package batch
