// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// mutation is one rule that is broken.
type mutation struct {
	name string
	why  string // what the rule is for, with the guarantee's id
	file string // from the root of the repository
	// old stands in the file once and becomes new.
	old, new string
	also     []edit // what has to change with it
	caught   catcher
}

// edit is another place that a mutation changes.
type edit struct{ file, old, new string }

func (m *mutation) edits() []edit { return append([]edit{{m.file, m.old, m.new}}, m.also...) }

// catcher is who has to notice: a test by its name, or the simulation within so many seeds.
type catcher struct {
	folder, test string
	seeds        int
}

// by names a test.
func by(folder, test string) catcher { return catcher{folder: folder, test: test} }

// bySimulation wants a violation within this many seeds.
func bySimulation(seeds int) catcher { return catcher{seeds: seeds} }

func (c catcher) String() string {
	if c.seeds > 0 {
		return fmt.Sprintf("margay sim --seeds %d", c.seeds)
	}
	return c.folder + ": " + c.test
}

// mutations is the whole list, from the disk upwards.
func mutations() []mutation {
	var all []mutation
	for _, part := range [][]mutation{storageRules(), keyIndexRules(), cacheRules(), logRules(), memoryRules(), deliveryRules(), leaderRules(), groupRules(), consumeRules(), clientRules()} {
		all = append(all, part...)
	}
	return all
}
