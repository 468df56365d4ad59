package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"tidemark/internal/clock"
)

// Memory is a full store in memory, for tests and the simulator. Its own Date is the clock's wall time.
type Memory struct {
	clock clock.Clock

	mu      sync.RWMutex // guards all below
	objects map[string]memoryObject
	keys    []string // of objects, sorted
	version uint64   // of the newest object; the source of ETags
}

type memoryObject struct {
	body []byte // never changed in place
	info Info
}

// NewMemory returns an empty store.
func NewMemory(c clock.Clock) *Memory {
	return &Memory{clock: c, objects: make(map[string]memoryObject)}
}

var _ Store = (*Memory)(nil)

// URL returns "mem://".
func (m *Memory) URL() string { return "mem://" }

func (m *Memory) find(ctx context.Context, op, key string) (memoryObject, error) {
	if err := checkKey(op, key); err != nil {
		return memoryObject{}, err
	}
	if err := Admitted(ctx); err != nil {
		return memoryObject{}, fail(op, key, CodeIO, err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, ok := m.objects[key]
	if !ok {
		return memoryObject{}, fail(op, key, CodeNotFound, ErrNotFound)
	}
	return o, nil
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) ([]byte, Info, error) {
	o, err := m.find(ctx, OpGet, key)
	if err != nil {
		return nil, Info{}, err
	}
	return bytes.Clone(o.body), o.info, nil
}

// GetRange implements [Store].
func (m *Memory) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := checkRange(key, offset, length); err != nil {
		return nil, err
	}
	o, err := m.find(ctx, OpGetRange, key)
	if err != nil {
		return nil, err
	}
	offset = min(offset, o.info.Size)
	length = min(length, o.info.Size-offset)
	return bytes.Clone(o.body[offset : offset+length]), nil
}

// Head implements [Store].
func (m *Memory) Head(ctx context.Context, key string) (Info, error) {
	o, err := m.find(ctx, OpHead, key)
	return o.info, err
}

// PutIfAbsent implements [Store].
func (m *Memory) PutIfAbsent(ctx context.Context, key string, body []byte) Result {
	return m.mutate(ctx, OpPutIfAbsent, key, body, func(_ memoryObject, exists bool) error {
		if exists {
			return ErrExists
		}
		return nil
	})
}

// ReplaceIfMatch implements [Store].
func (m *Memory) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) Result {
	return m.mutate(ctx, OpReplaceIfMatch, key, body, func(o memoryObject, exists bool) error {
		if !exists || o.info.ETag != etag {
			return ErrMismatch
		}
		return nil
	})
}

func (m *Memory) mutate(ctx context.Context, op, key string, body []byte, condition func(memoryObject, bool) error) Result {
	if err := checkKey(op, key); err != nil {
		return Result{Outcome: Refused, Err: err}
	}
	body = bytes.Clone(body)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := Admitted(ctx); err != nil {
		return refused(op, key, CodeIO, err)
	}
	o, exists := m.objects[key]
	if err := condition(o, exists); err != nil {
		return refused(op, key, CodeIO, err)
	}
	return Result{Outcome: Applied, Info: m.store(key, body)}
}

// store puts an object in place. The caller holds mu.
func (m *Memory) store(key string, body []byte) Info {
	m.version++
	info := Info{Key: key, Size: int64(len(body)), ETag: fmt.Sprintf("%016x", m.version), Modified: m.clock.Now()}
	if _, exists := m.objects[key]; !exists {
		at, _ := slices.BinarySearch(m.keys, key)
		m.keys = slices.Insert(m.keys, at, key)
	}
	m.objects[key] = memoryObject{body: body, info: info}
	return info
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := checkKey(OpDelete, key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := Admitted(ctx); err != nil {
		return fail(OpDelete, key, CodeIO, err)
	}
	if _, exists := m.objects[key]; exists {
		delete(m.objects, key)
		at, _ := slices.BinarySearch(m.keys, key)
		m.keys = slices.Delete(m.keys, at, at+1)
	}
	return nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, req ListRequest) (Page, error) {
	if err := checkList(&req); err != nil {
		return Page{}, err
	}
	if err := Admitted(ctx); err != nil {
		return Page{}, fail(OpList, req.Prefix, CodeIO, err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	page := Page{Date: m.clock.Now()}
	at, _ := slices.BinarySearch(m.keys, max(req.Prefix, req.After))
	for at < len(m.keys) && strings.HasPrefix(m.keys[at], req.Prefix) {
		key, dir := m.keys[at], ""
		at++
		if req.Delimited {
			if slash := strings.IndexByte(key[len(req.Prefix):], '/'); slash >= 0 {
				dir = key[:len(req.Prefix)+slash+1]
				// '0' follows '/', so this is where the keys below dir end.
				at, _ = slices.BinarySearch(m.keys, dir[:len(dir)-1]+"0")
			}
		}
		if dir != "" && dir <= req.After || dir == "" && key <= req.After {
			continue
		}
		if len(page.Objects)+len(page.Dirs) == req.Max {
			page.More = true
			break
		}
		if dir != "" {
			page.Dirs = append(page.Dirs, dir)
			page.Next = dir
		} else {
			page.Objects = append(page.Objects, m.objects[key].info)
			page.Next = key
		}
	}
	return page, nil
}

// Create implements [Store].
func (m *Memory) Create(ctx context.Context, key string) (Upload, error) {
	if err := checkKey(OpCreate, key); err != nil {
		return nil, err
	}
	if err := Admitted(ctx); err != nil {
		return nil, fail(OpCreate, key, CodeIO, err)
	}
	return &memoryUpload{memory: m, ctx: ctx, key: key}, nil
}

var errUploadEnded = errors.New("the upload has ended already")

type memoryUpload struct {
	memory *Memory
	ctx    context.Context // of Create
	key    string
	body   []byte
	ended  bool
}

func (u *memoryUpload) Write(p []byte) (int, error) {
	if u.ended {
		return 0, fail(OpWrite, u.key, CodeInvalid, errUploadEnded)
	}
	if err := Admitted(u.ctx); err != nil {
		return 0, fail(OpWrite, u.key, CodeIO, err)
	}
	u.body = append(u.body, p...)
	return len(p), nil
}

func (u *memoryUpload) Complete(ctx context.Context) (Info, error) {
	if u.ended {
		return Info{}, fail(OpComplete, u.key, CodeInvalid, errUploadEnded)
	}
	u.memory.mu.Lock()
	defer u.memory.mu.Unlock()
	if err := errors.Join(Admitted(u.ctx), Admitted(ctx)); err != nil {
		return Info{}, fail(OpComplete, u.key, CodeIO, err)
	}
	u.ended = true
	return u.memory.store(u.key, u.body), nil
}

func (u *memoryUpload) Abort(context.Context) error {
	u.ended, u.body = true, nil
	return nil
}
