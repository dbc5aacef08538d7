// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package load

// Volatile cannot be told here.
func Volatile(string) bool { return false }
