// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"margay.dev/bench/internal/build"
)

// makeAll builds all programs, and returns why peers could not be built. A peer that is not there is no reason to stop.
func makeAll(ctx context.Context, root, binaries string, say func(string, ...any)) (missing map[string]string, err error) {
	say("building margay, limits, bare, driver, keys and queues")
	if err := build.Ours(ctx, root, binaries, "margay", "limits", "bare", "driver", "keys", "queues"); err != nil {
		return nil, err
	}
	missing = map[string]string{}
	for _, name := range []string{"nats", "etcd", "redis", "rabbitmq"} {
		say("building %s", name)
		if err := build.Peer(ctx, root, binaries, name); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			missing[name] = readable(err.Error(), root, binaries, "")
		}
	}
	return missing, nil
}
