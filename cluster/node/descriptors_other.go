// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package node

func descriptorLimit() int { return 0 }
