// SPDX-License-Identifier: Apache-2.0

package wire

// Auth carries a token on the control lane: once after Hello, and again before it expires.
type Auth struct {
	Token string
}

// Type returns TypeAuth.
func (*Auth) Type() Type { return TypeAuth }

// Size returns the size of the body.
func (f *Auth) Size() int { return stringSize(f.Token) }

// Append appends the body.
func (f *Auth) Append(dst []byte) []byte { return appendString(dst, f.Token) }

// Parse reads the body.
func (f *Auth) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeAuth}
	f.Token = c.string()
	return c.done()
}
