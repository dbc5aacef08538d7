// SPDX-License-Identifier: Apache-2.0

package topic

import "strings"

// Match reports whether the pattern matches the key. It allocates nothing and takes time in proportion to the key. In what
// Validate refuses, "+" and "#" stand for nothing but themselves where no wildcard may be.
func Match(pattern string, key []byte) bool {
	for {
		level, pattern2, morePattern := strings.Cut(pattern, "/")
		if level == anyLevels {
			return !morePattern
		}
		end := 0
		for end < len(key) && key[end] != '/' {
			end++
		}
		if level != anyLevel && level != string(key[:end]) {
			return false
		}
		moreKey := end < len(key)
		switch {
		case !moreKey:
			return !morePattern || pattern2 == anyLevels
		case !morePattern:
			return false
		}
		pattern, key = pattern2, key[end+1:]
	}
}

// Contains reports whether every key that narrower matches is matched by wider too. Both must be valid. The answer is
// exact: there are always more names than two patterns spell out, so levels can be compared one by one.
func Contains(wider, narrower string) bool {
	if narrower == anyLevels {
		narrower = "+/#" // the same keys: every key has a first level
	}
	for {
		w, restW, moreW := strings.Cut(wider, "/")
		if w == anyLevels {
			return !moreW
		}
		n, restN, moreN := strings.Cut(narrower, "/")
		if n == anyLevels || w != anyLevel && w != n {
			return false
		}
		switch {
		case !moreN:
			return !moreW || restW == anyLevels
		case !moreW:
			return false
		}
		wider, narrower = restW, restN
	}
}

// ContainsPrefix reports whether every key that begins with prefix, byte for byte, is matched by the pattern. The last
// level of the prefix may go on in a key, so nothing but a wildcard stands for it.
func ContainsPrefix(pattern, prefix string) bool {
	for {
		p, restP, moreP := strings.Cut(pattern, "/")
		if p == anyLevels {
			return !moreP
		}
		level, rest, more := strings.Cut(prefix, "/")
		if !more {
			return p == anyLevel && restP == anyLevels
		}
		if !moreP || p != anyLevel && p != level {
			return false
		}
		pattern, prefix = restP, rest
	}
}
