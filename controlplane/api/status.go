// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"margay.dev/wire/control"
)

type statusOutput struct {
	Body control.Status
}

func (a *API) registerStatus() {
	if a.cfg.Status == nil {
		return
	}
	huma.Register(a.huma, a.operation(huma.Operation{
		OperationID: "get-status", Method: http.MethodGet, Path: control.StatusPath, Tags: []string{"node"}, Metadata: ofNode(),
		Summary: "Say how the node is", Description: "A verdict with its reasons, what is used of what there is, and counters for rates.",
	}), func(context.Context, *struct{}) (*statusOutput, error) {
		return &statusOutput{Body: a.cfg.Status()}, nil
	})
}
