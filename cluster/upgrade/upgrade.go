// SPDX-License-Identifier: Apache-2.0

// Package upgrade holds the test that a data directory of each earlier release opens under this one with all that
// it held. It has no code of its own.
package upgrade
