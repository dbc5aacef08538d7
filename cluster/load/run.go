// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
)

// Options of a run that do not change what is measured.
type Options struct {
	// ServerPID is the process to account for; 0 for none.
	ServerPID int
	// Progress is called about four times a second.
	Progress func(Progress)
}

// Run drives the system and measures it. The spec is filled in and validated first. When ctx ends, the run does: it returns what
// it has, marked as interrupted, and no error. An error means that there is no result worth having.
func Run(ctx context.Context, sys System, spec Spec, o Options) (*Result, error) {
	spec.Fill()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	_, _, _ = ctx, sys, o
	return nil, errors.New("not there yet")
}
