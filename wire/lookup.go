// SPDX-License-Identifier: Apache-2.0

package wire

// Lookup asks what log a name stands for and where its shards are led. Answered by LogInfo.
type Lookup struct {
	// Name is "tenant/namespace/name".
	Name string
}

// Type returns TypeLookup.
func (*Lookup) Type() Type { return TypeLookup }

// Size returns the size of the body.
func (f *Lookup) Size() int { return stringSize(f.Name) }

// Append appends the body.
func (f *Lookup) Append(dst []byte) []byte { return appendString(dst, f.Name) }

// Parse reads the body.
func (f *Lookup) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeLookup}
	f.Name = c.string()
	return c.done()
}
