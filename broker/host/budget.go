// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// errNoRoom means that the process has no descriptor left for another log. A log that took the last ones
// would starve those that are open: their segments could not roll (OP-10).
var errNoRoom = errors.New("no descriptor is left for another log")

// budget counts the logs that hold a descriptor, each for its newest segment.
type budget struct {
	limit int64 // 0 for no limit
	used  atomic.Int64
}

func (b *budget) take() error {
	if n := b.used.Add(1); b.limit > 0 && n > b.limit {
		b.used.Add(-1)
		return fmt.Errorf("%w: %d logs are open, which is the limit that the process's descriptors allow", errNoRoom, b.limit)
	}
	return nil
}

func (b *budget) give() { b.used.Add(-1) }
