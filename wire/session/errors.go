// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/quic-go/quic-go"

	"margay.dev/wire/code"
)

// alertNoProtocol is the TLS alert for "no application protocol in common".
const alertNoProtocol = 0x100 + 120

// ErrPeerClosed is in the error of a connection that its peer has closed in order, by the code 0 or code.Closed.
var ErrPeerClosed = errors.New("the peer has closed the connection")

// retryTooMany is when to try again after a listener that had as many connections as it may.
const retryTooMany = time.Second

// convert turns an error of the transport into a *code.Error, keeping io.EOF.
func convert(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if e, ok := errors.AsType[*code.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*quic.StreamError](err); ok {
		return laneError(op, code.Code(e.ErrorCode), e.Remote)
	}
	if e, ok := errors.AsType[*quic.ApplicationError](err); ok {
		return closeError(op, code.Code(e.ErrorCode), e.Remote, e.ErrorMessage)
	}
	if e, ok := errors.AsType[*quic.TransportError](err); ok {
		return code.New(transportCode(e), "%s: %w", op, err)
	}
	return code.New(otherCode(err), "%s: %w", op, err)
}

// laneError is what a lane fails with that one of its sides has ended with a code.
func laneError(op string, c code.Code, remote bool) error {
	if !remote {
		return code.New(code.Closed, "%s: the lane is closed", op)
	}
	if c == 0 {
		return code.New(code.Closed, "%s: the peer has closed the lane", op)
	}
	return code.New(c, "%s: the peer has reset the lane", op)
}

// closeError is what a connection has ended with that one of its sides has closed with a code.
func closeError(op string, c code.Code, remote bool, msg string) error {
	switch {
	case c == 0 && remote:
		return code.New(code.Unavailable, "%s: %w", op, ErrPeerClosed)
	case remote && c == code.Closed:
		return code.New(code.Closed, "%s: %w: %s", op, ErrPeerClosed, msg)
	case c == 0:
		return code.New(code.Closed, "%s: the connection is closed", op)
	case remote:
		err := code.New(c, "%s: the peer has closed the connection: %s", op, msg)
		if err.Code == code.TooMany {
			return err.Retry(retryTooMany) // a close carries a code and a text, nothing else
		}
		return err
	default:
		return code.New(c, "%s: %s", op, msg)
	}
}

func transportCode(e *quic.TransportError) code.Code {
	switch {
	case e.ErrorCode == quic.ConnectionRefused:
		return code.Unavailable // at a limit, or on its way down
	case e.ErrorCode == alertNoProtocol:
		return code.Unsupported
	case e.ErrorCode.IsCryptoError():
		return code.Unauthenticated // a certificate that does not convince one of the two sides
	default:
		return code.Protocol
	}
}

func otherCode(err error) code.Code {
	if c := tlsCode(err); c != 0 {
		return c
	}
	var (
		idle      *quic.IdleTimeoutError
		handshake *quic.HandshakeTimeoutError
		reset     *quic.StatelessResetError
		version   *quic.VersionNegotiationError
	)
	switch {
	case errors.As(err, &idle), errors.As(err, &handshake), errors.As(err, &reset):
		return code.Unavailable // the peer is gone: nothing new is applied there, and it may come back
	case errors.As(err, &version):
		return code.Unsupported
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return code.Timeout
	case errors.Is(err, context.Canceled):
		return code.Cancelled
	case errors.Is(err, quic.ErrStreamClosed), errors.Is(err, quic.ErrTransportClosed),
		errors.Is(err, quic.ErrServerClosed), errors.Is(err, net.ErrClosed):
		return code.Closed
	case brokenPath(err):
		return code.Unavailable
	}
	return code.Internal
}
