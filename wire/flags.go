// SPDX-License-Identifier: Apache-2.0

package wire

// Flags of frames say that a body has a part which others of its type do not have. Their numbers are of one type each.
const (
	// FlagFilters of Subscribe: filters stand behind the fixed part.
	FlagFilters uint8 = 1 << 0
	// FlagDurable of Subscribe: the name of a cursor stands behind the filters, if any. Of Subscribed: what became of it
	// in each shard stands behind the list.
	FlagDurable uint8 = 1 << 1
	// FlagConditions of Publish: conditions stand before the batch.
	FlagConditions uint8 = 1 << 0
	// FlagDerive of Publish: which records the leader is to derive stands before the batch, behind the conditions.
	FlagDerive uint8 = 1 << 1
	// FlagSums of Published: what the derived counters came to stands behind the fixed part.
	FlagSums uint8 = 1 << 0
	// FlagKeys of LogInfo: what the log does with its keys stands behind the list.
	FlagKeys uint8 = 1 << 0
	// FlagSlice of Messages: the records come as a slice and not as a whole batch.
	FlagSlice uint8 = 1 << 0
	// FlagSettings of GroupCommand: settings stand behind the fixed part.
	FlagSettings uint8 = 1 << 0
	// FlagHeader of Browse: a header that the messages must have stands behind the fixed part.
	FlagHeader uint8 = 1 << 0
)

// flags returns the flags that this build knows of the type.
func (t Type) flags() uint8 {
	switch t {
	case TypeSubscribe:
		return FlagFilters | FlagDurable
	case TypeSubscribed:
		return FlagDurable
	case TypePublish:
		return FlagConditions | FlagDerive
	case TypePublished:
		return FlagSums
	case TypeLogInfo:
		return FlagKeys
	case TypeMessages:
		return FlagSlice
	case TypeGroupCommand:
		return FlagSettings
	case TypeBrowse:
		return FlagHeader
	default:
		return 0
	}
}

// Flagged is a frame of which some bodies have flags. Flags follows from the frame's fields, so that whoever fills them in
// has nothing to remember; Parse is ParseFlags without any.
type Flagged interface {
	Frame
	Flags() uint8
	ParseFlags(flags uint8, body []byte) error
}

// ParseFrame reads the body behind a header into a frame of the header's type. It refuses what the header's Supported
// does, so that a frame that has no flags is never read as if it had none.
func ParseFrame(h Header, f Frame, body []byte) error {
	if err := h.Supported(); err != nil {
		return err
	}
	if x, ok := f.(Flagged); ok {
		return x.ParseFlags(h.Flags, body)
	}
	return f.Parse(body)
}

// flags refuses those that this build does not know.
func (c *cursor) flags(flags uint8) {
	if flags&^c.typ.flags() != 0 {
		c.fail(ErrValue)
	}
}
