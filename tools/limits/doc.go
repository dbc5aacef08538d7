// SPDX-License-Identifier: Apache-2.0

// Package limits holds the page of limits and defaults to the constants that it names. It is a test: it reads the tree and
// refuses a row whose value is not what the code says.
package limits
