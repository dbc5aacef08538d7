// SPDX-License-Identifier: Apache-2.0

// Package streams turns the documents of the API into changes of the catalog; it touches the catalog only, and answers
// every failure with a code, a document that makes no sense with all of its problems.
package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Service works on the streams of a catalog.
type Service struct {
	Store  catalog.Logs
	Leader string // the node that every shard is given to
	Wall   func() time.Time
}

// Create creates a stream, or finds the same one there already. Another one of that name is code.AlreadyExists, with the
// settings in which they differ.
func (s *Service) Create(ctx context.Context, tenant, namespace string, spec control.StreamSpec) (l control.Log, created bool, err error) {
	want, problems := spec.Log(tenant, namespace)
	if len(problems) > 0 {
		return control.Log{}, false, refuse(code.BadRequest, "the stream makes no sense", problems)
	}
	want.ID, want.CreatedAt = batch.NewLogID(), s.Wall().UTC()
	have, err := s.Store.Create(ctx, want, s.Leader)
	switch {
	case err == nil:
		return have, true, nil
	case !errors.Is(err, catalog.ErrExists):
		return control.Log{}, false, Coded(err)
	}
	if differ := control.SettingsDiffer(&have, &want); len(differ) > 0 {
		return control.Log{}, false, refuse(code.AlreadyExists, fmt.Sprintf("stream %s exists with other settings", want.FullName()), differ)
	}
	return have, false, nil
}

// Get gets a stream.
func (s *Service) Get(ctx context.Context, n catalog.Name) (control.Log, error) {
	l, err := s.Store.Log(ctx, n)
	return l, Coded(err)
}

// List gets a page of streams.
func (s *Service) List(ctx context.Context, tenant, namespace, after string, limit int) ([]control.Log, error) {
	page, err := s.Store.List(ctx, tenant, namespace, after, limit)
	return page, Coded(err)
}

// Update changes what the patch names; version 0 means whatever the stream is at.
func (s *Service) Update(ctx context.Context, n catalog.Name, version uint64, patch control.StreamPatch) (control.Log, error) {
	l, err := s.Store.Update(ctx, n, version, func(l *control.Log) error {
		if problems := patch.Apply(l); len(problems) > 0 {
			return refuse(code.BadRequest, "the change makes no sense", problems)
		}
		return nil
	})
	return l, Coded(err)
}

// Delete deletes a stream; version as in Update.
func (s *Service) Delete(ctx context.Context, n catalog.Name, version uint64) error {
	return Coded(s.Store.Delete(ctx, n, version))
}

// InvalidError is a refusal with everything that it is for.
type InvalidError struct {
	What     string
	Problems []control.Problem
	coded    *code.Error
}

func refuse(c code.Code, what string, problems []control.Problem) *InvalidError {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return &InvalidError{What: what, Problems: problems, coded: code.New(c, "%s: %s", what, strings.Join(lines, "; "))}
}

// Error lists all problems in one line.
func (e *InvalidError) Error() string { return e.coded.Error() }

// Unwrap is the error with its code.
func (e *InvalidError) Unwrap() error { return e.coded }

// Coded gives a failure of the catalog the code under which it leaves the control plane. The cause stays inside.
func Coded(err error) error {
	var coded *code.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.Is(err, catalog.ErrNotFound):
		return code.New(code.NotFound, "%w", err)
	case errors.Is(err, catalog.ErrExists):
		return code.New(code.AlreadyExists, "%w", err)
	case errors.Is(err, catalog.ErrVersion), errors.Is(err, catalog.ErrForeign):
		return code.New(code.Conflict, "%w", err)
	case errors.Is(err, catalog.ErrClosed):
		return code.New(code.ShuttingDown, "%w", err)
	case errors.Is(err, catalog.ErrUncertain):
		return code.New(code.OutcomeUnknown, "%w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return code.New(code.StorageFull, "%w", err)
	}
	return code.From(err)
}
