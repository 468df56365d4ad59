package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// arrow-go trusts the flatbuffers in an IPC file: a schema whose fields contain themselves overflows the stack, which no
// recover catches, and a length that is a lie allocates until the process dies. So the envelope of a file is checked
// before arrow-go sees it: how deep its fields nest, and that every message, body and buffer lies inside the file.
//
// Positions outside a flatbuffer need no check of their own: indexing panics, and guard makes an error of that.

const (
	arrowFieldsMax = 10_000 // columns and nested fields of one schema; also bounds fields that are shared many times
	arrowRowsMax   = 1 << 31
	// arrowBufferMax bounds what one compressed buffer may claim to unpack to; offsets of 32 bits cannot use more.
	arrowBufferMax = 1 << 31
	// arrowMetaMax bounds the flatbuffer of one message; it holds a few dozen bytes per column.
	arrowMetaMax = 64 << 20
)

// The kinds of messages, and the fields of flatbuffer tables by number, as format/Message.fbs, Schema.fbs and File.fbs
// of Apache Arrow define them.
const (
	messageSchema, messageDictionary, messageBatch                = 1, 2, 3
	slotMessageKind, slotMessageHeader, slotMessageBody           = 1, 2, 3
	slotSchemaFields, slotFieldChildren                           = 1, 5
	slotBatchRows, slotBatchNodes, slotBatchBuffers, slotBatchZip = 0, 1, 2, 3
	slotDictionaryData                                            = 1
	slotFooterSchema, slotFooterDictionaries, slotFooterBatches   = 1, 2, 3
)

var errArrowEnvelope = errors.New("a length or position in it points outside the file")

// flatTable is a table in a flatbuffer.
type flatTable struct {
	b  []byte
	at int
}

func flatRoot(b []byte) flatTable { return flatTable{b, int(u32(b, 0))} }

func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func i64(b []byte, at int) int64  { return int64(binary.LittleEndian.Uint64(b[at:])) }

// slot is where a field's value stands, or 0 if the table does not have it.
func (t flatTable) slot(n int) int {
	vtable := t.at - int(int32(u32(t.b, t.at)))
	entry := 4 + 2*n
	if entry >= int(binary.LittleEndian.Uint16(t.b[vtable:])) {
		return 0
	}
	offset := int(binary.LittleEndian.Uint16(t.b[vtable+entry:]))
	if offset == 0 {
		return 0
	}
	return t.at + offset
}

func (t flatTable) int64(n int) int64 {
	if at := t.slot(n); at > 0 {
		return i64(t.b, at)
	}
	return 0
}

func (t flatTable) table(n int) (flatTable, bool) {
	at := t.slot(n)
	if at == 0 {
		return flatTable{}, false
	}
	return flatTable{t.b, at + int(u32(t.b, at))}, true
}

// vector returns the position of the first element and the number of elements, whose size is given.
func (t flatTable) vector(n, size int) (first, count int) {
	at := t.slot(n)
	if at == 0 {
		return 0, 0
	}
	at += int(u32(t.b, at))
	count = int(u32(t.b, at))
	_ = t.b[at+4 : at+4+count*size] // panics if it is not inside
	return at + 4, count
}

// checkArrowFields follows the fields of a schema and what is nested in them.
func checkArrowFields(t flatTable, slot, depth int, seen *int) error {
	if depth > jsonDepthMax {
		return fmt.Errorf("its columns are nested more than %d deep", jsonDepthMax)
	}
	first, count := t.vector(slot, 4)
	for i := range count {
		if *seen++; *seen > arrowFieldsMax {
			return fmt.Errorf("it has more than %d columns", arrowFieldsMax)
		}
		at := first + 4*i
		if err := checkArrowFields(flatTable{t.b, at + int(u32(t.b, at))}, slotFieldChildren, depth+1, seen); err != nil {
			return err
		}
	}
	return nil
}

// checkArrowBatch checks a record batch whose body has so many bytes at from.
func checkArrowBatch(r io.ReaderAt, t flatTable, from, body int64) error {
	if rows := t.int64(slotBatchRows); rows < 0 || rows > arrowRowsMax {
		return fmt.Errorf("a record claims %d rows", rows)
	}
	first, count := t.vector(slotBatchNodes, 16)
	for i := range count {
		if rows := i64(t.b, first+16*i); rows < 0 || rows > arrowRowsMax {
			return fmt.Errorf("a column claims %d rows", rows)
		}
	}
	_, zipped := t.table(slotBatchZip)
	first, count = t.vector(slotBatchBuffers, 16)
	for i := range count {
		offset, length := i64(t.b, first+16*i), i64(t.b, first+16*i+8)
		if offset < 0 || length < 0 || offset > body || length > body-offset {
			return errArrowEnvelope
		}
		if !zipped || length == 0 {
			continue
		}
		var plain [8]byte
		if _, err := r.ReadAt(plain[:], from+offset); err != nil {
			return err
		}
		if n := i64(plain[:], 0); n < -1 || n > arrowBufferMax {
			return fmt.Errorf("a compressed buffer claims %d bytes", n)
		}
	}
	return nil
}

// checkArrowMessage checks the message at a position and returns where the next one starts, 0 at the end of the stream.
func checkArrowMessage(r io.ReaderAt, at, size int64) (next int64, err error) {
	var prefix [8]byte
	if n, err := r.ReadAt(prefix[:], at); n == 0 && err == io.EOF {
		return 0, nil
	} else if n < len(prefix) {
		return 0, io.ErrUnexpectedEOF
	}
	length, start := int64(int32(u32(prefix[:], 4))), at+8
	if u32(prefix[:], 0) != 0xffffffff { // before Arrow 0.15 there was no marker before the length
		length, start = int64(int32(u32(prefix[:], 0))), at+4
	}
	if length == 0 {
		return 0, nil
	}
	if length < 0 || length > arrowMetaMax || start+length > size {
		return 0, errArrowEnvelope
	}
	meta := make([]byte, length)
	if _, err := r.ReadAt(meta, start); err != nil {
		return 0, err
	}
	m := flatRoot(meta)
	from, body := start+length, m.int64(slotMessageBody)
	if body < 0 || body > size-from {
		return 0, errArrowEnvelope
	}
	header, ok := m.table(slotMessageHeader)
	if !ok {
		return 0, errors.New("a message without content")
	}
	switch meta[m.slot(slotMessageKind)] {
	case messageSchema:
		err = checkArrowFields(header, slotSchemaFields, 0, new(int))
	case messageDictionary:
		if header, ok = header.table(slotDictionaryData); ok {
			err = checkArrowBatch(r, header, from, body)
		}
	case messageBatch:
		err = checkArrowBatch(r, header, from, body)
	}
	return from + body, err
}

// checkArrowStream walks over all messages.
func checkArrowStream(r io.ReaderAt, size int64) error {
	for at := int64(0); ; {
		next, err := checkArrowMessage(r, at, size)
		if err != nil || next == 0 {
			return err
		}
		at = next
	}
}

// checkArrowFile follows the footer to the schema and all messages.
func checkArrowFile(r io.ReaderAt, size int64) error {
	const tail = 4 + len("ARROW1")
	var end [tail]byte
	if size < 2*int64(tail) {
		return io.ErrUnexpectedEOF
	}
	if _, err := r.ReadAt(end[:], size-int64(tail)); err != nil {
		return err
	}
	length := int64(int32(u32(end[:], 0)))
	if length <= 0 || length > min(arrowMetaMax, size-int64(tail)) {
		return errArrowEnvelope
	}
	footer := make([]byte, length)
	if _, err := r.ReadAt(footer, size-int64(tail)-length); err != nil {
		return err
	}
	f := flatRoot(footer)
	s, ok := f.table(slotFooterSchema)
	if !ok {
		return errors.New("its footer has no schema")
	}
	if err := checkArrowFields(s, slotSchemaFields, 0, new(int)); err != nil {
		return err
	}
	for _, slot := range []int{slotFooterDictionaries, slotFooterBatches} {
		const block = 24 // position, length of the metadata, padding, length of the body
		first, count := f.vector(slot, block)
		for i := range count {
			at := first + block*i
			position, meta, body := i64(footer, at), int64(int32(u32(footer, at+8))), i64(footer, at+16)
			if position < 0 || position > size || meta < 0 || meta > arrowMetaMax || body < 0 || body > size-position-meta {
				return errArrowEnvelope
			}
			if _, err := checkArrowMessage(r, position, size); err != nil {
				return err
			}
		}
	}
	return nil
}
