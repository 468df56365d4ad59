package deltalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The JSON form of actions. Readers must ignore what they do not know, so nothing here is strict about fields; what a
// version may hold at most once is held to that, because the order of actions within a version means nothing.

type actionJSON struct {
	CommitInfo json.RawMessage `json:"commitInfo,omitempty"`
	Protocol   *Protocol       `json:"protocol,omitempty"`
	Metadata   *Metadata       `json:"metaData,omitempty"`
	Txn        *Txn            `json:"txn,omitempty"`
	Remove     *removeJSON     `json:"remove,omitempty"`
	Add        *addJSON        `json:"add,omitempty"`
}

type addJSON struct {
	Path             string            `json:"path"`
	PartitionValues  partitionJSON     `json:"partitionValues"`
	Size             int64             `json:"size"`
	ModificationTime int64             `json:"modificationTime"`
	DataChange       bool              `json:"dataChange"`
	Stats            string            `json:"stats,omitempty"`
	Tags             map[string]string `json:"tags,omitempty"`
	DeletionVector   *json.RawMessage  `json:"deletionVector,omitempty"`
}

type removeJSON struct {
	Path                 string            `json:"path"`
	DeletionTimestamp    int64             `json:"deletionTimestamp,omitempty"`
	DataChange           bool              `json:"dataChange"`
	ExtendedFileMetadata bool              `json:"extendedFileMetadata,omitempty"`
	PartitionValues      partitionJSON     `json:"partitionValues,omitzero"`
	Size                 int64             `json:"size,omitempty"`
	Stats                string            `json:"stats,omitempty"`
	Tags                 map[string]string `json:"tags,omitempty"`
	DeletionVector       *json.RawMessage  `json:"deletionVector,omitempty"`
}

// partitionJSON are partition values, of which "" is null: the protocol takes an empty string for one too, but not every
// reader does.
type partitionJSON map[string]string

func (p partitionJSON) MarshalJSON() ([]byte, error) {
	out := make(map[string]*string, len(p))
	for column, text := range p {
		out[column] = nil
		if text != "" {
			out[column] = &text
		}
	}
	return json.Marshal(out)
}

type infoJSON struct {
	Timestamp   int64             `json:"timestamp"`
	Operation   string            `json:"operation"`
	Parameters  map[string]string `json:"operationParameters"`
	Metrics     map[string]string `json:"operationMetrics,omitempty"`
	ReadVersion *int64            `json:"readVersion,omitempty"`
	BlindAppend bool              `json:"isBlindAppend"`
	Engine      string            `json:"engineInfo"`
	Nonce       string            `json:"txnId,omitempty"`
	ExecutionID string            `json:"tidemarkExecution,omitempty"`
}

var errDeletionVector = errors.New("the file has a deletion vector, which Tidemark does not support")

// encodeCommit writes a version as it stands in the log: one action per line, commitInfo first.
func encodeCommit(c Commit) ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)

	info, err := json.Marshal(encodeInfo(c.Info))
	if err != nil {
		return nil, err
	}
	actions := []actionJSON{{CommitInfo: info}}
	if c.Protocol != nil {
		actions = append(actions, actionJSON{Protocol: c.Protocol})
	}
	if c.Metadata != nil {
		m := c.Metadata.normal()
		actions = append(actions, actionJSON{Metadata: &m})
	}
	for _, t := range c.Txns {
		actions = append(actions, actionJSON{Txn: &t})
	}
	for _, r := range c.Removes {
		actions = append(actions, actionJSON{Remove: encodeRemove(r)})
	}
	for _, a := range c.Adds {
		actions = append(actions, actionJSON{Add: encodeAdd(a)})
	}
	for i := range actions {
		if err := lines.Encode(&actions[i]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func encodeInfo(i CommitInfo) infoJSON {
	out := infoJSON{
		Timestamp: i.Timestamp, Operation: i.Operation, Parameters: i.Parameters, BlindAppend: i.blindAppend,
		Engine: Engine, Nonce: i.nonce, ExecutionID: i.ExecutionID,
	}
	if out.Parameters == nil {
		out.Parameters = map[string]string{}
	}
	if i.readVersion >= 0 {
		out.ReadVersion = &i.readVersion
	}
	if len(i.Metrics) > 0 {
		out.Metrics = make(map[string]string, len(i.Metrics))
		for name, n := range i.Metrics {
			out.Metrics[name] = strconv.FormatInt(n, 10)
		}
	}
	return out
}

func encodeAdd(a Add) *addJSON {
	out := &addJSON{
		Path: a.uri, PartitionValues: a.PartitionValues, Size: a.Size, ModificationTime: a.ModificationTime,
		DataChange: a.DataChange, Stats: a.Stats, Tags: a.Tags,
	}
	if out.Path == "" {
		out.Path = encodePath(a.Path)
	}
	if out.PartitionValues == nil {
		out.PartitionValues = map[string]string{}
	}
	return out
}

func encodeRemove(r Remove) *removeJSON {
	out := &removeJSON{
		Path: r.uri, DeletionTimestamp: r.DeletionTimestamp, DataChange: r.DataChange, ExtendedFileMetadata: true,
		PartitionValues: r.PartitionValues, Size: r.Size, Stats: r.Stats, Tags: r.Tags,
	}
	if out.Path == "" {
		out.Path = encodePath(r.Path)
	}
	if out.PartitionValues == nil {
		out.PartitionValues = map[string]string{}
	}
	return out
}

// lineError says which line of a commit cannot be understood.
type lineError struct {
	line int // from 1
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// parseCommit reads a version as it stands in the log.
func parseCommit(version int64, body []byte) (Commit, error) {
	c := Commit{Version: version, Info: CommitInfo{readVersion: -1}}
	for line := 1; len(body) > 0; line++ {
		var text []byte
		text, body, _ = bytes.Cut(body, []byte{'\n'})
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		var a actionJSON
		if err := json.Unmarshal(text, &a); err != nil {
			return Commit{}, &lineError{line, err}
		}
		if err := c.take(a); err != nil {
			return Commit{}, &lineError{line, err}
		}
	}
	return c, c.check()
}

func (c *Commit) take(a actionJSON) error {
	if len(a.CommitInfo) > 0 {
		c.Info = decodeInfo(a.CommitInfo)
	}
	if a.Protocol != nil {
		if c.Protocol != nil {
			return errors.New("a second protocol action in one version")
		}
		c.Protocol = a.Protocol
	}
	if a.Metadata != nil {
		if c.Metadata != nil {
			return errors.New("a second metaData action in one version")
		}
		m := a.Metadata.normal()
		c.Metadata = &m
	}
	if a.Txn != nil {
		c.Txns = append(c.Txns, *a.Txn)
	}
	if a.Add != nil {
		add, err := decodeAdd(a.Add)
		if err != nil {
			return err
		}
		c.Adds = append(c.Adds, add)
	}
	if a.Remove != nil {
		remove, err := decodeRemove(a.Remove)
		if err != nil {
			return err
		}
		c.Removes = append(c.Removes, remove)
	}
	return nil
}

// check refuses a version whose meaning would depend on the order of its actions.
func (c *Commit) check() error {
	files := make(map[string]bool, len(c.Adds)+len(c.Removes))
	for _, a := range c.Adds {
		if files[a.Path] {
			return fmt.Errorf("file %q is added twice in one version", a.Path)
		}
		files[a.Path] = true
	}
	for _, r := range c.Removes {
		if files[r.Path] {
			return fmt.Errorf("file %q is added and removed, or removed twice, in one version", r.Path)
		}
		files[r.Path] = true
	}
	marks := make(map[string]bool, len(c.Txns))
	for _, t := range c.Txns {
		if t.AppID == "" || marks[t.AppID] {
			return fmt.Errorf("transaction %q has no name or stands twice in one version", t.AppID)
		}
		marks[t.AppID] = true
	}
	return nil
}

func decodeAdd(in *addJSON) (Add, error) {
	if in.DeletionVector != nil {
		return Add{}, fmt.Errorf("add %q: %w", in.Path, errDeletionVector)
	}
	if in.Size < 0 {
		return Add{}, fmt.Errorf("add %q: size %d is below zero", in.Path, in.Size)
	}
	path, err := decodePath(in.Path)
	if err != nil {
		return Add{}, fmt.Errorf("add: %w", err)
	}
	return Add{
		Path: path, PartitionValues: in.PartitionValues, Size: in.Size, ModificationTime: in.ModificationTime,
		DataChange: in.DataChange, Stats: in.Stats, Tags: in.Tags, uri: oddURI(in.Path, path),
	}, nil
}

func decodeRemove(in *removeJSON) (Remove, error) {
	if in.DeletionVector != nil {
		return Remove{}, fmt.Errorf("remove %q: %w", in.Path, errDeletionVector)
	}
	path, err := decodePath(in.Path)
	if err != nil {
		return Remove{}, fmt.Errorf("remove: %w", err)
	}
	return Remove{
		Path: path, DeletionTimestamp: in.DeletionTimestamp, DataChange: in.DataChange,
		PartitionValues: in.PartitionValues, Size: in.Size, Stats: in.Stats, Tags: in.Tags, uri: oddURI(in.Path, path),
	}, nil
}

// oddURI keeps another engine's spelling of a path, so that it is written back as it was.
func oddURI(uri, path string) string {
	if encodePath(path) == uri {
		return ""
	}
	return strings.Clone(uri)
}

func decodeInfo(raw json.RawMessage) CommitInfo {
	i := CommitInfo{readVersion: -1}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return i
	}
	// A field of another form than ours is somebody else's; it keeps its zero value.
	take := func(name string, into any) { _ = json.Unmarshal(fields[name], into) }
	take("timestamp", &i.Timestamp)
	take("operation", &i.Operation)
	take("operationParameters", &i.Parameters)
	take("engineInfo", &i.Engine)
	take("txnId", &i.nonce)
	take("tidemarkExecution", &i.ExecutionID)
	take("readVersion", &i.readVersion)
	take("isBlindAppend", &i.blindAppend)
	var metrics map[string]json.RawMessage
	take("operationMetrics", &metrics)
	for name, raw := range metrics {
		if n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64); err == nil {
			if i.Metrics == nil {
				i.Metrics = make(map[string]int64, len(metrics))
			}
			i.Metrics[name] = n
		}
	}
	return i
}

func sortCommit(c *Commit) {
	slices.SortFunc(c.Adds, func(a, b Add) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(c.Removes, func(a, b Remove) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(c.Txns, func(a, b Txn) int { return strings.Compare(a.AppID, b.AppID) })
}
