// SPDX-License-Identifier: Apache-2.0

package load

import (
	"flag"
	"fmt"
	"slices"
	"time"
)

// Watched is what each watcher of Watch watches.
type Watched string

// A key to which all puts go, or the prefix of all keys that the puts go round.
const (
	WatchKey    Watched = "key"
	WatchPrefix Watched = "prefix"
)

const (
	// defaultKeys are put in turn, or got.
	defaultKeys = 1000
	// defaultKeySize has room for all numbers of keys.
	defaultKeySize = len(KeyPrefix) + 10
	// defaultWindow is how many puts and gets are under way.
	defaultWindow = 64
	// defaultPace is what a watcher takes for a change that is in the way of puts: a hundred a second.
	defaultPace = 10 * time.Millisecond
)

// keyFlags are those of put, get and watch.
func (s *Spec) keyFlags(fs *flag.FlagSet, def *Spec) {
	w := s.Workload
	fs.IntVar(&s.Keys, "keys", 0, "keys that are put or got (default 1,000; 1 when one key is watched)")
	fs.IntVar(&s.KeySize, "key-size", 0, fmt.Sprintf("bytes of a key (default %d)", defaultKeySize))
	if w == Get {
		return
	}
	fs.BoolVar(&s.Random, "random", false, "put keys in a random order, in place of one after the other")
	if w == Put {
		fs.IntVar(&s.Watchers, "watchers", 0, "watchers of all keys that are slow, to be in the way")
	} else {
		fs.IntVar(&s.Watchers, "watchers", def.Watchers, "watchers, each of which is told of every put")
	}
	if w != "" {
		fs.IntVar(&s.Connections, "connections", 0, "connections that the watchers share (default: each has its own)")
	}
	if w == "" || w == Watch {
		fs.StringVar((*string)(&s.Watch), "watch", string(def.Watch), "what each watcher watches: key (one, to which all puts go) or prefix (all keys)")
	}
	if w == "" || w == Put {
		fs.DurationVar(&s.Pace, "pace", def.Pace, "what a slow watcher takes for each change (default 10ms)")
	}
}

// fillKeys is Fill for the workloads with keys.
func (s *Spec) fillKeys(fill func(*int, int)) {
	fill(&s.InFlight, defaultWindow)
	if s.Workload == Watch {
		fill(&s.Watchers, 1)
		if s.Watch == "" {
			s.Watch = WatchKey
		}
		if s.Watch == WatchKey {
			fill(&s.Keys, 1)
		}
	}
	fill(&s.Keys, defaultKeys)
	fill(&s.KeySize, defaultKeySize)
	if s.Workload == Put && s.Watchers > 0 && s.Pace == 0 {
		s.Pace = defaultPace
	}
	if s.Watchers > 0 {
		fill(&s.Connections, s.Watchers)
	}
}

// receivers are how many must have a message before it is no longer under way; 0 when none is waited for.
func (s *Spec) receivers() int {
	switch s.Workload {
	case Fanout:
		return s.Subscribers
	case Watch:
		return s.Watchers
	case Handle:
		return 1
	default:
		return 0
	}
}

// validateKeys is Validate for what only the workloads with keys have.
func (s *Spec) validateKeys() (errs []error) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if !s.Workload.HasKeys() {
		must((s.Keys == 0 || s.Workload.HasQueue()) && s.Watchers == 0 && s.Watch == "" && s.Pace == 0 && !s.Random, "--keys, --watchers, --watch and --pace: for put, get and watch only")
		return errs
	}
	must(s.KeySize >= defaultKeySize && s.KeySize <= 1024, "--key-size %d: want %d to 1024", s.KeySize, defaultKeySize)
	must(!s.Random || s.Workload != Get, "--random: gets are, always")
	must(s.Keys >= 1 && s.Keys <= 10_000_000, "--keys %d: want 1 to 10,000,000", s.Keys)
	must(s.Watchers >= 0 && s.Watchers <= 100_000, "--watchers %d: want 1 to 100,000", s.Watchers)
	must(s.Connections >= 0 && s.Connections <= s.Watchers, "--connections %d: want 1 to --watchers, which is %d", s.Connections, s.Watchers)
	must(s.Pace >= 0 && s.Pace <= time.Minute, "--pace %v: want more than 0s, and 1m at most", s.Pace)
	must(s.Subscribers == 0, "--subscribers %d: a cache has watchers", s.Subscribers)
	must(s.Watchers == 0 || s.Workload != Get, "--watchers %d: gets change nothing to watch", s.Watchers)
	must(s.Pace == 0 || s.Workload == Put && s.Watchers > 0, "--pace %v: for the watchers of put", s.Pace)
	if s.Workload != Watch {
		must(s.Watch == "", "--watch %s: for the workload watch", s.Watch)
		return errs
	}
	must(slices.Contains([]Watched{WatchKey, WatchPrefix}, s.Watch), "--watch %q: want key or prefix", s.Watch)
	must(s.Watch != WatchKey || s.Keys == 1, "--keys %d: one key is watched, and put; --watch prefix has them all", s.Keys)
	must(s.Size >= MarkedSize, "--size %d: want %d (a value that is watched begins with its time and its mark) or more", s.Size, MarkedSize)
	return errs
}
