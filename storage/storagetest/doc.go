// SPDX-License-Identifier: Apache-2.0

// Package storagetest holds every storage.Log to one contract: a conformance suite, a model to compare with, and a writer
// that plays the leader. It touches only logs that it is handed and refuses to know how they keep their bytes.
package storagetest
