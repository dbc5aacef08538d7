// SPDX-License-Identifier: Apache-2.0

package main

// keyIndexRules are those of what knows the newest record of each key: which record that is, and what a start may believe.
func keyIndexRules() []mutation {
	return []mutation{
		{
			name: "let-the-later-place-win",
			why:  "In every index the higher offset wins, whatever the sequence: a carried record is not newer than what was set since.",
			file: "storage/keyindex/entry.go",
			old:  "	return e.Offset > old.Offset || ",
			new:  "	return e.Sequence > old.Sequence || ",

			caught: by("storage/keyindex", "TestACarriedRecordMovesAndStaysWhatItWas"),
		},
		{
			name: "change-what-a-snapshot-holds",
			why:  "A snapshot with entries above its mark would be read by a copy that lost them.",
			file: "storage/keyindex/index.go",
			old:  "	if x.shared > 0 { // a snapshot holds this one\n",
			new:  "	if false { // a snapshot holds this one\n",

			caught: by("storage/keyindex", "TestASnapshotIsTheIndexAsItWas"),
		},
		{
			name: "rename-a-snapshot-that-is-not-flushed",
			why:  "After a power cut the name would be there and the bytes not, and the snapshot before is gone.",
			file: "storage/keyindex/file.go",
			old:  "		err = f.Sync() // before the rename",
			new:  "		// before the rename",

			caught: by("storage/keyindex", "TestAPowerCutLeavesTheOldOrTheNew"),
		},
		{
			name: "leave-what-a-failed-save-wrote",
			why:  "RT-06: a full disk is not filled further by every try.",
			file: "storage/keyindex/file.go",
			old:  "		_ = removeIfThere(fsys, temp) // the first error",
			new:  "		// the first error",

			caught: by("storage/keyindex", "TestAFullDiskKeepsTheSnapshotBefore"),
		},
		{
			name: "drop-a-snapshot-that-the-disk-failed-to-read",
			why:  "A fault that passes must not cost a read of the whole log.",
			file: "storage/keyindex/file.go",
			old:  "	case !useless(err):\n",
			new:  "	case errors.Is(err, vfs.ErrNotExist):\n",

			caught: by("storage/keyindex", "TestAFaultWhileReadingDropsNothing"),
		},
	}
}
