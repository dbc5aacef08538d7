// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// conn speaks just enough of Redis's protocol for a handful of commands, with no allocation for each message: a client
// library would spend on one XADD about as much as the server does, on the same two cores.
type conn struct {
	nc net.Conn
	r  *bufio.Reader
}

func connect(ctx context.Context, addr string) (*conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &conn{nc: nc, r: bufio.NewReaderSize(nc, 64<<10)}, nil
}

func (c *conn) Close() error { return c.nc.Close() }

// appendCommand encodes a command.
func appendCommand(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// serverError is an error that Redis answered.
type serverError string

func (e serverError) Error() string { return "redis: " + string(e) }

var errProtocol = errors.New("redis: not an answer")

// value is an answer: text, or a list. A null has neither.
type value struct {
	text string
	list []value
}

// do sends a command and returns its answer.
func (c *conn) do(args ...string) (value, error) {
	if _, err := c.nc.Write(appendCommand(nil, args...)); err != nil {
		return value{}, err
	}
	return c.read()
}

func (c *conn) read() (value, error) {
	kind, n, text, err := c.head()
	if err != nil {
		return value{}, err
	}
	switch kind {
	case '$':
		if n < 0 {
			return value{}, nil
		}
		b := make([]byte, n)
		err = c.bulk(b)
		return value{text: string(b)}, err
	case '*':
		v := value{list: make([]value, max(n, 0))}
		for i := range v.list {
			if v.list[i], err = c.read(); err != nil {
				return value{}, err
			}
		}
		return v, nil
	}
	return value{text: text}, nil
}

// head reads the first line of an answer: what kind it is, and its number or its text.
func (c *conn) head() (kind byte, n int, text string, err error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, 0, "", err
	}
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return 0, 0, "", errProtocol
	}
	kind, line = line[0], line[1:]
	switch kind {
	case '$', '*', ':':
		n, ok := number(line)
		if !ok {
			return 0, 0, "", errProtocol
		}
		return kind, n, "", nil
	case '+':
		return kind, 0, string(line), nil
	case '-':
		return kind, 0, "", serverError(line)
	}
	return 0, 0, "", errProtocol
}

// bulk fills b with the bytes that a head announced.
func (c *conn) bulk(b []byte) error {
	if _, err := io.ReadFull(c.r, b); err != nil {
		return err
	}
	_, err := c.r.Discard(len("\r\n"))
	return err
}

// number is strconv.Atoi for the lengths of the protocol, without making a string of them.
func number(b []byte) (n int, ok bool) {
	if len(b) > 1 && b[0] == '-' {
		n, ok = number(b[1:])
		return -n, ok
	}
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// itoa is short for what commands take.
func itoa(n int) string { return strconv.Itoa(n) }

// answer reads the answer to an XADD at the start of b: its length, 0 when it is not whole, and the error it may be.
func answer(b []byte) (n int, failed, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return 0, nil, nil
	}
	line := bytes.TrimRight(b[min(1, end):end], "\r")
	switch b[0] {
	case '-':
		return end + 1, serverError(line), nil
	case '$':
		size, ok := number(line)
		if !ok || size < 0 || size > 1<<10 {
			return 0, nil, errProtocol
		}
		if n = end + 1 + size + len("\r\n"); n > len(b) {
			return 0, nil, nil
		}
		return n, nil, nil
	}
	return 0, nil, errProtocol
}
