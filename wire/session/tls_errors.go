// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"reflect"
	"syscall"

	"margay.dev/wire/code"
)

var (
	// errCutOff is the end of a TCP connection that TLS did not announce: by a peer that died, or by somebody in between who
	// would have a lane end early. Only what TLS has announced is an end.
	errCutOff = errors.New("the TCP connection ended without notice")
	// errStandstill is a write that has not moved for too long.
	errStandstill = errors.New("the peer takes nothing")
	// errGivenUp is a direction that our own side has ended.
	errGivenUp = errors.New("given up by this side")
)

// tlsCode finds the code of an error that TLS made; 0 for one that it did not.
func tlsCode(err error) code.Code {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return code.Unauthenticated
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return code.Protocol // the peer does not speak TLS
	}
	alert, ok := alertOf(err)
	switch {
	case !ok:
		return 0
	case alert == 120, alert == 70: // no application protocol, or no version, in common
		return code.Unsupported
	case alert >= 42 && alert <= 49, alert == 116: // something about a certificate
		return code.Unauthenticated
	}
	return code.Protocol
}

// alertOf finds the alert by which the peer has ended TLS. crypto/tls does not export its type over TCP.
func alertOf(err error) (uint64, bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return 0, false
	}
	v := reflect.ValueOf(op.Err)
	if v.Kind() != reflect.Uint8 {
		return 0, false
	}
	return v.Uint(), true
}

// brokenPath says that the network or the peer's machine ended a TCP connection, or would not have one.
func brokenPath(err error) bool {
	for _, known := range []error{
		errCutOff, io.ErrUnexpectedEOF, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
		syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
