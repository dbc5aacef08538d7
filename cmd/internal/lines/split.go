// SPDX-License-Identifier: Apache-2.0

// Package lines publishes a text as one record a line, pipelined and in bounded memory, and knows at
// the end of every line whether it is in, out or unknown; it reads its input and calls back, and
// refuses to guess: a line without an answer is never called in.
package lines

import (
	"bufio"
	"errors"
	"io"

	"margay.dev/wire/code"
)

// splitter cuts a text at \n and nowhere else: a \r is part of the line, an empty line is an empty
// value, and only a last line that is not empty may lack its \n.
type splitter struct {
	r    *bufio.Reader
	most int
}

func newSplitter(r io.Reader, most int) *splitter {
	return &splitter{r: bufio.NewReaderSize(r, 64<<10), most: most}
}

// next returns the next line in memory of its own, since it outlives the buffer while its record is in
// flight, or io.EOF after the last one.
func (s *splitter) next() ([]byte, error) {
	var line []byte
	for {
		part, err := s.r.ReadSlice('\n')
		whole := err == nil
		if whole {
			part = part[:len(part)-1]
		}
		if len(line)+len(part) > s.most {
			return nil, code.New(code.TooLarge, "line of more than %d bytes", s.most).With(code.DetailLimit, uint64(s.most))
		}
		if line == nil {
			line = make([]byte, 0, len(part))
		}
		line = append(line, part...)
		switch {
		case whole:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}
