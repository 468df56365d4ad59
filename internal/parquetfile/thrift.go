package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Thrift's compact protocol, as far as walking it goes. arrow-go allocates what a footer or page header claims before it
// has seen the bytes; walking them first, without allocating anything, shows whether the claims can be true.

var errThrift = errors.New("metadata is cut off or malformed")

// thriftDepthMax bounds how deep structs and lists nest; Parquet's own nest less than ten deep.
const thriftDepthMax = 32

// Types of the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftStruct = 12
)

// thriftCursor walks bytes in the compact protocol.
type thriftCursor struct {
	b     []byte
	at    int
	depth int
}

func (c *thriftCursor) left() int { return len(c.b) - c.at }

func (c *thriftCursor) byte() (byte, error) {
	if c.left() < 1 {
		return 0, errThrift
	}
	c.at++
	return c.b[c.at-1], nil
}

func (c *thriftCursor) uvarint() (uint64, error) {
	v, n := binary.Uvarint(c.b[c.at:])
	if n <= 0 {
		return 0, errThrift
	}
	c.at += n
	return v, nil
}

// integer reads a zigzag number.
func (c *thriftCursor) integer() (int64, error) {
	v, err := c.uvarint()
	return int64(v>>1) ^ -int64(v&1), err
}

func (c *thriftCursor) advance(n uint64) error {
	if n > uint64(c.left()) {
		return errThrift
	}
	c.at += int(n)
	return nil
}

// fields walks a struct and calls visit at the value of each field. If visit does not take the value, it is skipped.
func (c *thriftCursor) fields(visit func(id int64, typ byte) (taken bool, err error)) error {
	if c.depth++; c.depth > thriftDepthMax {
		return fmt.Errorf("%w: it nests too deep", errThrift)
	}
	defer func() { c.depth-- }()
	id := int64(0)
	for {
		head, err := c.byte()
		if err != nil || head == 0 {
			return err
		}
		if delta := head >> 4; delta > 0 {
			id += int64(delta)
		} else if id, err = c.integer(); err != nil {
			return err
		}
		taken, err := visit(id, head&15)
		if err != nil {
			return err
		}
		if !taken {
			if err := c.skip(head & 15); err != nil {
				return err
			}
		}
	}
}

// list reads the head of a list: its length, which is at most the bytes left, and the type of its elements.
func (c *thriftCursor) list() (n uint64, elem byte, err error) {
	head, err := c.byte()
	if err != nil {
		return 0, 0, err
	}
	n = uint64(head >> 4)
	if n == 15 {
		if n, err = c.uvarint(); err != nil {
			return 0, 0, err
		}
	}
	if n > uint64(c.left()) { // every element takes a byte at least
		return 0, 0, errThrift
	}
	return n, head & 15, nil
}

func (c *thriftCursor) skip(typ byte) error {
	switch typ {
	case thriftTrue, thriftFalse:
		return nil
	case thriftByte:
		return c.advance(1)
	case thriftI16, thriftI32, thriftI64:
		_, err := c.uvarint()
		return err
	case thriftDouble:
		return c.advance(8)
	case thriftBinary:
		n, err := c.uvarint()
		if err != nil {
			return err
		}
		return c.advance(n)
	case thriftList, thriftSet:
		return c.skipList()
	case thriftStruct:
		return c.fields(func(int64, byte) (bool, error) { return false, nil })
	}
	return fmt.Errorf("%w: type %d", errThrift, typ) // Parquet has no maps
}

func (c *thriftCursor) skipList() error {
	if c.depth++; c.depth > thriftDepthMax {
		return fmt.Errorf("%w: it nests too deep", errThrift)
	}
	defer func() { c.depth-- }()
	n, elem, err := c.list()
	if err != nil {
		return err
	}
	for ; n > 0; n-- {
		if elem == thriftTrue || elem == thriftFalse { // in lists they take a byte
			err = c.advance(1)
		} else {
			err = c.skip(elem)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
