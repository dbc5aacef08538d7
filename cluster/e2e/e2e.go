// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the tests that need nodes as processes of their own: kills, restarts, signals, limits of the system,
// and what clients see of them. It has no code of its own.
package e2e
