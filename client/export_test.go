// SPDX-License-Identifier: Apache-2.0

package client

import "time"

// SubscribeTimeout shortens what no test should wait for.
func SubscribeTimeout(d time.Duration) Option {
	return option(func(c *config) { c.subscribeTimeout = d })
}

// MergeAfter is how long a consumer has several lanes.
func MergeAfter(d time.Duration) ConsumeOption {
	return consumeOption(func(c *consumeConfig) { c.mergeAfter = d })
}
