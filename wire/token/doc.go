// SPDX-License-Identifier: Apache-2.0

// Package token signs and verifies the short-lived tokens of both planes and decides what one allows; it touches no
// network, file or clock, and refuses every algorithm but EdDSA and every permission that is not granted.
package token
