// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"margay.dev/storage/vfs"
)

// DirFormat is the version of the layout of a data directory that this release reads and writes.
const DirFormat = 1

// maxStamp bounds what is read of an identity file.
const maxStamp = 64 << 10

// ErrIncomplete means a data directory that has lost the file that says whose it is.
var ErrIncomplete = errors.New("identity is missing")

// Identity is who opens a data directory.
type Identity struct {
	Node    string
	Cluster string
	// Random gives the bytes of a new disk id; nil means crypto/rand.
	Random io.Reader
}

// Validate reports all that is missing.
func (id Identity) Validate() error {
	var errs []error
	if id.Node == "" {
		errs = append(errs, errors.New("node id is empty"))
	}
	if id.Cluster == "" {
		errs = append(errs, errors.New("cluster id is empty"))
	}
	return errors.Join(errs...)
}

// stamp is the content of the identity file.
type stamp struct {
	FormatVersion int    `json:"format_version"`
	Node          string `json:"node"`
	Cluster       string `json:"cluster"`
	Disk          string `json:"disk"`
	Starts        uint64 `json:"starts"`
}

func newStamp(id Identity) (*stamp, error) {
	random := id.Random
	if random == nil {
		random = rand.Reader
	}
	var disk [16]byte
	if _, err := io.ReadFull(random, disk[:]); err != nil {
		return nil, fmt.Errorf("draw a disk id: %w", err)
	}
	return &stamp{FormatVersion: DirFormat, Node: id.Node, Cluster: id.Cluster, Disk: hex.EncodeToString(disk[:])}, nil
}

// sectorSize is what a disk writes whole or not at all.
const sectorSize = 512

// encode pads the bytes to whole sectors.
func (s *stamp) encode() []byte {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // strings and integers always encode
	}
	pad := sectorSize - (len(data)+1)%sectorSize
	return append(append(data, bytes.Repeat([]byte(" "), pad%sectorSize)...), '\n')
}

// write replaces the stamp in dir. On a full disk, which a node must be able to start on to make room, it is overwritten
// where it is: that needs no room, and a power cut leaves the old bytes or the new ones as long as they are one sector.
func (s *stamp) write(fsys vfs.FS, dir string) error {
	name, data := path.Join(dir, identityName), s.encode()
	err := vfs.WriteFile(fsys, name, data)
	if !vfs.IsFull(err) || len(data) > sectorSize {
		return err
	}
	f, openErr := fsys.OpenFile(name)
	if openErr != nil {
		return err
	}
	size, sizeErr := f.Size()
	if sizeErr == nil && size == int64(len(data)) {
		if _, err = f.WriteAt(data, 0); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// readStamp returns the stamp of dir if id may open it, nil if dir is new, and otherwise why not. It only reads.
func readStamp(fsys vfs.FS, dir string, id Identity) (*stamp, error) {
	data, err := vfs.ReadFile(fsys, path.Join(dir, identityName), maxStamp)
	if errors.Is(err, vfs.ErrNotExist) {
		return nil, checkNew(fsys, dir)
	}
	if err != nil {
		return nil, err
	}
	s, err := parseStamp(data)
	if err != nil {
		return nil, err
	}
	return s, s.admits(id)
}

// checkNew refuses a directory that holds anything but what an earlier first start may have left.
func checkNew(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, vfs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		// A freshly made file system has lost+found in its root.
		return name == lockName || name == identityName+vfs.TempSuffix || name == "lost+found"
	})
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: there is no %s beside %q; put the file back from a copy, or move the data away to start empty",
		ErrIncomplete, identityName, names)
}

func parseStamp(data []byte) (*stamp, error) {
	// The version first: a newer release may have other fields.
	var version struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("%s: %w; put the file back from a copy", identityName, err)
	}
	if version.FormatVersion > DirFormat {
		return nil, fmt.Errorf("%w: it has format version %d, this release reads up to %d; start a release that is not older",
			ErrNewerFormat, version.FormatVersion, DirFormat)
	}
	var s stamp
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(&s)
	if err == nil && dec.More() {
		err = errors.New("there is more behind the object")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; put the file back from a copy", identityName, err)
	}
	if s.FormatVersion < 1 || s.Node == "" || s.Cluster == "" || s.Disk == "" {
		return nil, fmt.Errorf("%s: a field is missing; put the file back from a copy", identityName)
	}
	return &s, nil
}

// admits refuses another node or cluster, naming both sides.
func (s *stamp) admits(id Identity) error {
	if s.Node == id.Node && s.Cluster == id.Cluster {
		return nil
	}
	return fmt.Errorf("%w: it is of node %q in cluster %q, this is node %q in cluster %q; "+
		"start with the directory of this node, or with the node and cluster of this directory",
		ErrForeign, s.Node, s.Cluster, id.Node, id.Cluster)
}
