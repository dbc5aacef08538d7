// SPDX-License-Identifier: Apache-2.0

package main

// storageRules are those of the files: what is on the disk when somebody is told so, and what a start believes of it.
func storageRules() []mutation {
	return []mutation{
		{
			name: "skip-the-flush-of-the-data",
			why:  "S2: an acknowledged record is on the disk.",
			file: "storage/flush.go",
			old:  "	if err := h.file.Sync(); err != nil {\n",
			new:  "	if err := error(nil); err != nil {\n",

			caught: by("storage/storagetest", "TestPowerCut"),
		},
		{
			name: "skip-the-flush-of-the-directory",
			why:  "S2: power loss removes a whole file whose name was not flushed.",
			file: "storage/flush.go",
			old:  "	if !linked {\n",
			new:  "	if !linked && false {\n",

			caught: by("storage/storagetest", "TestNamesAreFlushed"),
		},
		{
			name: "skip-the-flush-of-the-directories-above",
			why:  "S2: a shard's directory is as easily lost as a file.",
			file: "storage/append.go",
			old:  "	return vfs.MakeDir(l.o.FS, root, l.o.Dir)\n",
			new:  "	_ = vfs.MakeDir\n	return l.o.FS.MkdirAll(l.o.Dir)\n",

			caught: by("storage/storagetest", "TestNamesAreFlushed"),
		},
		{
			name: "trust-a-failed-flush",
			why:  "S2, ST-11: after a failed flush the next one that succeeds proves nothing.",
			file: "storage/flush.go",
			old:  "return flushed, l.poisonWith(fmt.Errorf(\"flush %s: %w\", segment.Name(s.Base), err))",
			new:  "return flushed, fmt.Errorf(\"flush %s: %w\", segment.Name(s.Base), err)",

			caught: by("storage/storagetest", "TestFailedFlush"),
		},
		{
			name: "believe-what-reads-back-after-a-failed-flush",
			why:  "S2, ST-11: the kernel calls the pages clean, a read shows them, and a power cut takes them.",
			file: "storage/open_act.go",
			old:  "		if pos, err = writeAt(r.file, b, pos); err != nil {\n",
			new:  "		if pos, err = pos+int64(len(b)), nil; err != nil {\n",

			caught: by("storage", "TestOpenRewritesWhatAFailedFlushLeft"),
		},
		{
			name: "leave-what-a-failed-write-wrote",
			why:  "R5: a record that was refused must not turn up.",
			file: "storage/append.go",
			old:  "	if err := s.h.file.Truncate(s.Size); err != nil {\n",
			new:  "	if err := error(nil); err != nil {\n",

			caught: by("storage", "TestFailedWriteLeavesNothing"),
		},
		{
			name: "roll-without-flushing-the-old-segment",
			why:  "S2: whoever finds a segment takes the one before it for whole.",
			file: "storage/append.go",
			old:  "	if old != nil {\n		if _, err := l.Flush(); err != nil {\n			return err\n		}\n	} else if err",
			new:  "	if old != nil {\n		l.mu.Lock()\n		l.flushed = l.cursor.Sequence\n		l.mu.Unlock()\n	} else if err",

			caught: by("storage/storagetest", "TestPowerCut"),
		},
		{
			name: "write-behind-a-checkpoint-that-is-not-flushed",
			why:  "S2: a segment without its checkpoint is dropped as never born, with all behind it.",
			file: "storage/append.go",
			old:  "	if err == nil && complete {\n",
			new:  "	if err == nil && complete && false {\n",

			caught: by("storage/storagetest", "TestPowerCut"),
		},
		{
			name: "take-a-torn-tail-for-valid",
			why:  "S2: what a power cut tore is not what was written.",
			file: "storage/segment/scan.go",
			old:  "	b, fault = batch.CheckStored(raw)\n",
			new:  "	b = batch.Batch(raw)\n",

			caught: by("storage/storagetest", "TestTornTail"),
		},
		{
			name: "cut-damage-of-flushed-data-as-if-it-were-a-torn-tail",
			why:  "R6: damage is told, never repaired in silence.",
			file: "storage/recovery/recovery.go",
			old:  "	case flushed > s.Damage.Sequence:\n",
			new:  "	case flushed > s.Damage.Sequence && false:\n",

			caught: by("storage/storagetest", "TestFlushedDamageIsNotATornTail"),
		},
		{
			name: "ignore-where-to-cut-after-a-failed-flush",
			why:  "S7, ST-11: what was told to be of unknown outcome, and repeated since, would be there twice.",
			file: "storage/open.go",
			old:  "	to := r.l.o.CutTo\n",
			new:  "	var to *uint64\n",

			caught: by("storage", "TestFailedFlushPoisons"),
		},
		{
			name: "cut-without-a-note",
			why:  "R6: a power cut inside a truncation looks like damage of what was flushed.",
			file: "storage/cut.go",
			old:  "	if scan.Summary.Size < s.Size && length < l.State().Flushed {\n",
			new:  "	if scan.Summary.Size < s.Size && length < l.State().Flushed && false {\n",

			caught: by("storage/storagetest", "TestPowerCut"),
		},
		{
			name: "remove-segments-without-flushing-the-directory",
			why:  "R6: a power cut between two removals leaves a hole.",
			file: "storage/cut.go",
			old:  "	if err := fsys.SyncDir(dir); err != nil {\n		return fmt.Errorf(\"remove segment %s: flush directory: %w\", name, err)\n	}\n",
			new:  "",

			caught: by("storage/storagetest", "TestPowerCut"),
		},
		{
			name: "drop-the-segment-that-a-newborn-one-rests-on",
			why:  "S2: until its checkpoint is flushed the newest segment may be dropped, and the log is the one before it.",
			file: "storage/cut.go",
			old:  "	if n := l.newest(); n != nil && l.flushed <= n.Base {\n",
			new:  "	if n := l.newest(); n != nil && l.flushed <= n.Base && false {\n",

			caught: by("storage/storagetest", "TestDiskOnMemfs"),
		},
		{
			name: "let-a-second-process-into-the-directory",
			why:  "S1: two writers on one file are the end of both.",
			file: "storage/vfs/os.go",
			old:  "syscall.LOCK_EX|syscall.LOCK_NB",
			new:  "syscall.LOCK_SH|syscall.LOCK_NB",

			caught: by("storage", "TestDirHasOneHolder"),
		},
	}
}
