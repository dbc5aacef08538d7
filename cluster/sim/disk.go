// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
)

// disk is what outlives the process, and what goes wrong with it.
type disk struct {
	w      *world
	mem    *memfs.FS
	faulty *faultfs.FS
	slow   time.Duration // until then flushes take long
}

func newDisk(w *world) *disk {
	d := &disk{w: w, mem: memfs.New(rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())))}
	d.faulty = faultfs.Wrap(d.mem)
	return d
}

// lose is what a power cut does.
func (d *disk) lose() {
	d.mem = d.mem.Crash(d.w.rng)
	d.faulty = faultfs.Wrap(d.mem)
}

// errDead is what a dead process is told of its files, which it cannot be.
var errDead = errors.New("the process is dead")

// ofShards says whether a file or directory is one of a shard's.
func ofShards(name string) bool { return strings.Contains(name, "shards/") }

// fail makes the next calls of some kinds fail.
func (d *disk) fail(r *faultfs.Rule) {
	r.Path = ofShards
	if r.Err == nil {
		r.Err = syscall.EIO
	}
	r.Skip = d.w.rng.IntN(4)
	if r.Max == 0 {
		r.Max = 1 + d.w.rng.IntN(2)
	}
	d.faulty.Add(r)
}

// gate is the file system as one process has it: it takes time, and its process can die at any call.
type gate struct {
	*faultfs.FS
	w     *world
	p     *process
	files []vfs.File // open ones, for when the process dies
	armed int        // calls that change something until the process dies; 0 for never
	how   string     // it dies
}

// enter is before each call.
func (g *gate) enter(op faultfs.Op, name string) error {
	if g.p.dead {
		return errDead
	}
	if !op.Mutates() {
		return nil
	}
	if g.armed > 0 {
		if g.armed--; g.armed == 0 {
			g.w.logf("%s at %s of %s", g.how, op, name)
			g.w.die(g.how == powerCutAt)
			return errDead
		}
	}
	if d := g.takes(op); d > 0 && g.p.reading == 0 {
		if g.p.host != nil {
			g.p.wakeSubscriptions() // something may have been handed to them within this step
		}
		g.w.wait(d)
		if g.p.dead {
			return errDead
		}
	}
	return nil
}

// takes is how long a call takes.
func (g *gate) takes(op faultfs.Op) time.Duration {
	switch op {
	case faultfs.Sync, faultfs.SyncDir:
		d := g.w.between(g.w.plan.flush/4, g.w.plan.flush)
		if g.w.now < g.w.disk.slow {
			d += g.w.between(20*time.Millisecond, 400*time.Millisecond)
		}
		return d
	case faultfs.WriteAt, faultfs.Create, faultfs.Remove:
		if g.w.chance(4) {
			return g.w.between(time.Microsecond, g.w.plan.flush/4)
		}
	default:
	}
	return 0
}

// die takes the process's files away.
func (g *gate) die() {
	for _, f := range g.files {
		_ = f.Close() // closed already, or closed now
	}
	g.files = nil
}

func (g *gate) open(op faultfs.Op, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := g.enter(op, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	g.files = append(g.files, f)
	return &gateFile{f, g, name}, nil
}

func (g *gate) Create(name string) (vfs.File, error) {
	return g.open(faultfs.Create, name, g.FS.Create)
}

func (g *gate) OpenFile(name string) (vfs.File, error) {
	return g.open(faultfs.OpenFile, name, g.FS.OpenFile)
}

func (g *gate) OpenRead(name string) (vfs.File, error) {
	return g.open(faultfs.OpenRead, name, g.FS.OpenRead)
}

func (g *gate) Remove(name string) error {
	if err := g.enter(faultfs.Remove, name); err != nil {
		return err
	}
	return g.FS.Remove(name)
}

func (g *gate) Rename(oldName, newName string) error {
	if err := g.enter(faultfs.Rename, oldName); err != nil {
		return err
	}
	return g.FS.Rename(oldName, newName)
}

func (g *gate) MkdirAll(dir string) error {
	if err := g.enter(faultfs.MkdirAll, dir); err != nil {
		return err
	}
	return g.FS.MkdirAll(dir)
}

func (g *gate) List(dir string) ([]string, error) {
	if err := g.enter(faultfs.List, dir); err != nil {
		return nil, err
	}
	return g.FS.List(dir)
}

func (g *gate) Stat(name string) (vfs.Info, error) {
	if err := g.enter(faultfs.Stat, name); err != nil {
		return vfs.Info{}, err
	}
	return g.FS.Stat(name)
}

func (g *gate) SyncDir(dir string) error {
	if err := g.enter(faultfs.SyncDir, dir); err != nil {
		return err
	}
	return g.FS.SyncDir(dir)
}

func (g *gate) Lock(name string) (io.Closer, error) {
	if err := g.enter(faultfs.Lock, name); err != nil {
		return nil, err
	}
	return g.FS.Lock(name)
}

func (g *gate) Free(dir string) (uint64, error) {
	if err := g.enter(faultfs.Free, dir); err != nil {
		return 0, err
	}
	return g.FS.Free(dir)
}

type gateFile struct {
	vfs.File
	g    *gate
	name string
}

func (f *gateFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.g.enter(faultfs.ReadAt, f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *gateFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.g.enter(faultfs.WriteAt, f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *gateFile) Truncate(size int64) error {
	if err := f.g.enter(faultfs.Truncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *gateFile) Sync() error {
	if err := f.g.enter(faultfs.Sync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *gateFile) Preallocate(size int64) error {
	if err := f.g.enter(faultfs.Preallocate, f.name); err != nil {
		return err
	}
	return f.File.Preallocate(size)
}

func (f *gateFile) Close() error {
	if f.g.p.dead {
		return errDead
	}
	return f.File.Close()
}
