// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package load

import "context"

func newSleeper(ctx context.Context) sleeper { return newTimer(ctx) }
