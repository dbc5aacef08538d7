// SPDX-License-Identifier: Apache-2.0

package output_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/code"
)

type harness struct {
	out, err bytes.Buffer
	*output.Printer
}

func printer(t *testing.T, format output.Format, terminal bool) *harness {
	h := &harness{}
	h.Printer = output.NewPrinter(format, output.Streams{
		Out: &h.out, Err: &h.err, OutTerminal: terminal, ErrTerminal: terminal, Color: terminal,
	})
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func TestFormatFlag(t *testing.T) {
	var f output.Format
	for _, s := range []string{"text", "json", "raw"} {
		if err := f.Set(s); err != nil || f.String() != s {
			t.Errorf("Set(%q) = %v, %v", s, f, err)
		}
	}
	if err := f.Set("yaml"); err == nil || f != output.Raw {
		t.Errorf("Set(yaml) = %v, left %v", err, f)
	}
}

func TestJSONKeepsCharactersReadable(t *testing.T) {
	p := printer(t, output.JSON, false)
	if err := errors.Join(p.JSON(map[string]string{"a": "<&>"}), p.JSON(1), p.Flush()); err != nil {
		t.Fatal(err)
	}
	if got, want := p.out.String(), "{\"a\":\"<&>\"}\n1\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestDecorationNeedsATerminal(t *testing.T) {
	write := func(p *harness) (string, string) {
		err := errors.Join(
			p.Table([]string{"NAME", "N"}, [][]string{{"orders", "4"}, {"x", "12"}}),
			p.Line("%s", p.Bold("done")), p.Flush(),
		)
		if err != nil {
			t.Fatal(err)
		}
		p.Note("hint")
		p.Warn("gap")
		return p.out.String(), p.err.String()
	}
	out, errs := write(printer(t, output.Text, false))
	if out != "orders  4\nx       12\ndone\n" || errs != "gap\n" {
		t.Errorf("piped: %q and %q", out, errs)
	}
	out, errs = write(printer(t, output.Text, true))
	if out != "NAME    N\norders  4\nx       12\n\x1b[1mdone\x1b[0m\n" || errs != "hint\ngap\n" {
		t.Errorf("terminal: %q and %q", out, errs)
	}
}

func TestFail(t *testing.T) {
	r := exit.Describe(code.New(code.NotFound, "stream orders"), exit.Writes)
	text := printer(t, output.Text, false)
	text.Fail(r)
	want := "error: " + r.What + "\n data: " + r.Data + "\n   do: " + r.Do + "\n"
	if got := text.err.String(); got != want || text.out.Len() > 0 {
		t.Errorf("text: %q, want %q", got, want)
	}
	object := printer(t, output.JSON, false)
	object.Fail(r)
	if got := object.err.String(); !bytes.HasPrefix([]byte(got), []byte(`{"exit":5,"code":"not_found","class":"fatal","error":`)) {
		t.Errorf("json: %q", got)
	}
}

func TestShowCannotDriveATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "": "", "tab\there": "tab\there", "naïve ☃": "naïve ☃",
		"\x1b[2J": `"\x1b[2J"`, "two\nlines": `"two\nlines"`, "\xff\x00": `"\xff\x00"`, "\u202egnp": "\"\\u202egnp\"",
	} {
		if got := output.Show([]byte(in)); got != want {
			t.Errorf("Show(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestEncode(t *testing.T) {
	for in, want := range map[string][2]string{
		"": {"", "text"}, "a\x00b": {"a\x00b", "text"}, "\xff": {"/w==", "base64"},
	} {
		value, encoding := output.Encode([]byte(in))
		if value != want[0] || encoding != want[1] {
			t.Errorf("Encode(%q) = %q, %s; want %q", in, value, encoding, want)
		}
	}
}

// writes hands on what is written to it.
type writes chan string

func (w writes) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// A quiet stream's last record must show although nothing comes after it.
func TestBufferedFlushesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := make(writes, 1)
		b := output.NewBuffered(file)
		for _, text := range []string{"first", "second"} {
			if err := b.With(func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
				t.Fatal(err)
			}
			if len(file) > 0 {
				t.Error("written at once, want buffered")
			}
			began := time.Now()
			if got := <-file; got != text || time.Since(began) > 100*time.Millisecond {
				t.Errorf("%q was written after %v, want %s soon", got, time.Since(began), text)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBufferedKeepsItsFirstError(t *testing.T) {
	gone := errors.New("gone")
	b := output.NewBuffered(io.Discard)
	if err := b.With(func(io.Writer) error { return gone }); !errors.Is(err, gone) {
		t.Fatal(err)
	}
	called := false
	if err := b.With(func(io.Writer) error { called = true; return nil }); !errors.Is(err, gone) || called {
		t.Errorf("the next write = %v, called %t; want the first error and no write", err, called)
	}
	if err := b.Close(); !errors.Is(err, gone) {
		t.Errorf("Close = %v, want the first error", err)
	}
}

func TestProgressNeedsATerminalAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := printer(t, output.Text, true)
		stop := long.Progress(func() string { return "half" })
		time.Sleep(1300 * time.Millisecond)
		long.Warn("in between")
		stop()
		if got, want := long.err.String(), "\rhalf\r\x1b[K\rhalf\r\x1b[Kin between\n"; got != want {
			t.Errorf("wrote %q, want %q", got, want)
		}
		short := printer(t, output.Text, true)
		short.Progress(func() string { return "never" })()
		piped := printer(t, output.Text, false)
		stop = piped.Progress(func() string { return "never" })
		time.Sleep(5 * time.Second)
		stop()
		if short.err.Len()+piped.err.Len() > 0 {
			t.Errorf("short work wrote %q, piped work %q", short.err.String(), piped.err.String())
		}
	})
}
