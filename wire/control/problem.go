// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/http"
	"strings"
	"time"

	"margay.dev/wire/code"
)

// ProblemType is the media type of an error answer.
const ProblemType = "application/problem+json"

// ProblemDocument is the body of every error answer: a problem document (RFC 9457) with a stable code. Type is left out,
// which the RFC reads as about:blank: the code says what a type would.
type ProblemDocument struct {
	Title      string    `json:"title" doc:"The status in words"`
	Status     int       `json:"status" doc:"The HTTP status"`
	Code       string    `json:"code" doc:"Stable name of the error" example:"not_found"`
	Class      string    `json:"class" doc:"refused: not applied, may succeed later; fatal: not applied, fails again unchanged; unknown: may have been applied"`
	Detail     string    `json:"detail" doc:"What happened"`
	Remedy     string    `json:"remedy" doc:"What to do"`
	RequestID  string    `json:"request_id" doc:"Names the request in the server's log"`
	RetryAfter *Duration `json:"retry_after,omitempty" doc:"How long to wait before trying again"`
	Errors     []Problem `json:"errors,omitempty" doc:"Each thing wrong with the request"`
}

// NewProblem is the document for an error, under the status that fits its code.
func NewProblem(e *code.Error, requestID string, details ...Problem) *ProblemDocument {
	status := HTTPStatus(e.Code)
	p := &ProblemDocument{
		Title: http.StatusText(status), Status: status,
		Code: e.Code.Error(), Class: e.Class.String(), Detail: e.Message, Remedy: e.Code.Remedy(),
		RequestID: requestID, Errors: details,
	}
	if e.RetryAfter > 0 {
		d := Duration(e.RetryAfter)
		p.RetryAfter = &d
	}
	return p
}

// Err is the error that a document stands for. One of a newer server, with a code unknown here, keeps its class.
func (p *ProblemDocument) Err() *code.Error {
	c := codeOfStatus(p.Status)
	for _, known := range code.All() {
		if known.Error() == p.Code {
			c = known
		}
	}
	var msg strings.Builder
	msg.WriteString(p.Detail)
	for i, d := range p.Errors {
		if i == 0 && msg.Len() > 0 {
			msg.WriteString(": ")
		} else if i > 0 {
			msg.WriteString("; ")
		}
		msg.WriteString(d.String())
	}
	if p.RequestID != "" {
		msg.WriteString(" [request " + p.RequestID + "]")
	}
	e := code.New(c, "%s", msg.String())
	for _, class := range []code.Class{code.ClassRefused, code.ClassFatal, code.ClassUnknown} {
		if class.String() == p.Class {
			e.Class = class
		}
	}
	if p.RetryAfter != nil {
		e.RetryAfter = time.Duration(*p.RetryAfter)
	}
	return e
}

// HTTPStatus is the status under which the REST API answers a code.
func HTTPStatus(c code.Code) int {
	switch c {
	case code.BadRequest, code.CorruptBatch, code.OutOfRange, code.OutOfOrder:
		return http.StatusBadRequest
	case code.Unsupported:
		return http.StatusNotImplemented
	case code.Unauthenticated:
		return http.StatusUnauthorized
	case code.PermissionDenied:
		return http.StatusForbidden
	case code.NotFound:
		return http.StatusNotFound
	case code.AlreadyExists, code.Conflict:
		return http.StatusConflict
	case code.Deleted:
		return http.StatusGone
	case code.TooLarge:
		return http.StatusRequestEntityTooLarge
	case code.Overloaded, code.TooMany:
		return http.StatusTooManyRequests
	case code.NotLeader, code.Opening, code.Unavailable, code.ShuttingDown:
		return http.StatusServiceUnavailable
	case code.StorageFull:
		return http.StatusInsufficientStorage
	case code.Timeout:
		return http.StatusGatewayTimeout
	default: // codes of the data plane, which no REST answer has
		return http.StatusInternalServerError
	}
}

// codeOfStatus reads a status whose answer carries no code of ours: a proxy's, or one of net/http itself.
func codeOfStatus(status int) code.Code {
	switch status {
	case http.StatusUnauthorized:
		return code.Unauthenticated
	case http.StatusForbidden:
		return code.PermissionDenied
	case http.StatusNotFound, http.StatusGone:
		return code.NotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return code.Conflict
	case http.StatusRequestEntityTooLarge:
		return code.TooLarge
	case http.StatusTooManyRequests:
		return code.Overloaded
	case http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotAcceptable, http.StatusNotImplemented:
		return code.Unsupported
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return code.Unavailable
	}
	if status >= 400 && status < 500 {
		return code.BadRequest
	}
	return code.Internal
}
