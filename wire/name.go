// SPDX-License-Identifier: Apache-2.0

package wire

// MaxName is the longest a name may be, in bytes.
const MaxName = 64

// NameRule is the one rule for the names of tenants, namespaces, logs and durable subscriptions, as messages and
// documents quote it. Lower case only and no separator of any file system: no two names can meet in one directory or
// one URL.
const NameRule = "[a-z0-9][a-z0-9._-]{0,63}"

// ValidName reports whether s follows NameRule.
func ValidName(s string) bool {
	if s == "" || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// name reads a string that follows NameRule.
func (c *cursor) name() string {
	s := c.string()
	if c.err == nil && !ValidName(s) {
		c.fail(ErrValue)
	}
	return s
}
