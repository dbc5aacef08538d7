// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"margay.dev/storage/vfs"
)

// What a reading does: some 20 ms of each on an ordinary machine.
const (
	hashes    = 16
	hashBytes = 1 << 20
	flushes   = 32
	dropped   = 4 // the slowest flushes: a journal's own commit is no storm
	pings     = 600
)

// Taker takes readings. It holds a file and two sockets.
type Taker struct {
	name   string
	file   vfs.File
	near   *net.UDPConn
	far    net.PacketConn
	echoed chan struct{}
	end    int64
}

// NewTaker makes a file name of its own, which must not be there, on the file system to probe.
func NewTaker(name string) (*Taker, error) {
	f, err := vfs.OS().Create(name)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	t := &Taker{name: name, file: f, echoed: make(chan struct{})}
	loopback := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	far, err := net.ListenUDP("udp", loopback)
	if err == nil {
		t.far = far
		t.near, err = net.DialUDP("udp", nil, far.LocalAddr().(*net.UDPAddr))
	}
	if err != nil {
		close(t.echoed)
		return nil, errors.Join(fmt.Errorf("probe: %w", err), t.Close())
	}
	go t.echo()
	return t, nil
}

func (t *Taker) echo() {
	defer close(t.echoed)
	buf := make([]byte, 256)
	for {
		n, from, err := t.far.ReadFrom(buf)
		if err != nil {
			return
		}
		if _, err := t.far.WriteTo(buf[:n], from); err != nil {
			return
		}
	}
}

// Take does the work once.
func (t *Taker) Take() (Reading, error) {
	r := Reading{CPU: hash()}
	var err error
	if r.Flush, err = t.flush(); err == nil {
		r.Ping, err = t.ping()
	}
	if err != nil {
		return r, fmt.Errorf("probe: %w", err)
	}
	return r, nil
}

func hash() time.Duration {
	p := make([]byte, hashBytes)
	begin := time.Now()
	for range hashes {
		sum := sha256.Sum256(p)
		copy(p, sum[:])
	}
	return time.Since(begin)
}

func (t *Taker) flush() (time.Duration, error) {
	p := make([]byte, 4<<10)
	took := make([]time.Duration, flushes)
	for i := range took {
		begin := time.Now()
		if _, err := t.file.WriteAt(p, t.end); err != nil {
			return 0, err
		}
		if err := t.file.Sync(); err != nil {
			return 0, err
		}
		t.end += int64(len(p))
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	var all time.Duration
	for _, d := range took[:flushes-dropped] {
		all += d
	}
	return all, nil
}

func (t *Taker) ping() (time.Duration, error) {
	buf := make([]byte, 64)
	begin := time.Now()
	if err := t.near.SetDeadline(begin.Add(10 * time.Second)); err != nil {
		return 0, err
	}
	for range pings {
		if _, err := t.near.Write(buf); err != nil {
			return 0, err
		}
		if _, err := t.near.Read(buf); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// Close removes the file.
func (t *Taker) Close() error {
	var errs []error
	if t.near != nil {
		errs = append(errs, t.near.Close())
	}
	if t.far != nil {
		errs = append(errs, t.far.Close())
	}
	<-t.echoed
	return errors.Join(append(errs, t.file.Close(), os.Remove(t.name))...)
}
