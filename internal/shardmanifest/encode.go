package shardmanifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// bodyMax bounds what is decoded, in bytes: 4,096 generations of at most 1 KiB each, and the rest.
const bodyMax = 8 << 20

// Encode returns the bytes of a manifest as they are stored.
func Encode(m *Manifest) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest version %d of shard %s: %w", m.Version, m.Shard, err)
	}
	return append(body, '\n'), nil
}

// Decode parses and checks a stored manifest. It fails with ErrFormat for a format version it does not know, and with
// ErrDamaged for anything that no sequence of events can have led to.
func Decode(body []byte) (*Manifest, error) {
	if len(body) > bodyMax {
		return nil, fmt.Errorf("%w: %d bytes are more than the %d a manifest may have", ErrDamaged, len(body), bodyMax)
	}
	var head struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if head.Format == nil {
		return nil, fmt.Errorf("%w: it names no format version", ErrDamaged)
	}
	if *head.Format != FormatVersion {
		return nil, fmt.Errorf("%w %d: this build knows version %d; use a build at least as new as the writer's",
			ErrFormat, *head.Format, FormatVersion)
	}
	m := new(Manifest)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	return m, nil
}

// check refuses a manifest that breaks what its readers rely on.
func (m *Manifest) check() error {
	switch {
	case m.Version == 0 || m.Version == math.MaxUint64:
		return fmt.Errorf("version %d", m.Version)
	case m.Boundary >= m.Version:
		return fmt.Errorf("boundary %d is not below version %d", m.Boundary, m.Version)
	case m.Nonce == "" || m.TableID == "" || m.Shard == "" || m.WriterID == "":
		return errors.New("nonce, table id, shard or writer id is missing")
	case m.State != StateOpen && m.State != StateClosed && m.State != StateRetired:
		return fmt.Errorf("state %q", m.State)
	case m.Bytes < 0 || m.Rows < 0 || m.TrimmedBytes < 0 || m.TrimmedRows < 0:
		return errors.New("negative bytes or rows")
	case len(m.Trims) > trimsMax:
		return fmt.Errorf("%d trims", len(m.Trims))
	}
	if err := m.checkClaims(); err != nil {
		return err
	}
	if err := m.checkTrims(); err != nil {
		return err
	}
	return m.checkGenerations()
}

func (m *Manifest) checkClaims() error {
	if len(m.Claims) == 0 || len(m.Claims) > claimsMax {
		return fmt.Errorf("%d claims", len(m.Claims))
	}
	for i, c := range m.Claims {
		if c.Epoch == 0 || c.WriterID == "" || c.SealedThrough > m.SealedThrough {
			return fmt.Errorf("claim %d: epoch %d, writer id %q, sealed through %d of %d",
				i, c.Epoch, c.WriterID, c.SealedThrough, m.SealedThrough)
		}
		if i > 0 && (c.Epoch != m.Claims[i-1].Epoch+1 || c.SealedThrough < m.Claims[i-1].SealedThrough) {
			return fmt.Errorf("claims %d and %d are out of order", i-1, i)
		}
	}
	if last := m.Holder(); last.Epoch != m.Epoch || last.WriterID != m.WriterID {
		return fmt.Errorf("epoch %d of writer %q is not the last claim, %d of %q", m.Epoch, m.WriterID, last.Epoch, last.WriterID)
	}
	return nil
}

func (m *Manifest) checkTrims() error {
	for i, t := range m.Trims {
		if t.Through == 0 || t.Through > m.TrimmedThrough || t.Version == 0 || t.Version > m.Version ||
			i > 0 && (t.Through <= m.Trims[i-1].Through || t.Version <= m.Trims[i-1].Version) {
			return fmt.Errorf("trim %d: through %d at version %d", i, t.Through, t.Version)
		}
	}
	return nil
}

func (m *Manifest) checkGenerations() error {
	if len(m.Generations) > GenerationsMax || m.TrimmedThrough > m.SealedThrough ||
		m.SealedThrough-m.TrimmedThrough != uint64(len(m.Generations)) {
		return fmt.Errorf("%d generations for %d trimmed to %d sealed", len(m.Generations), m.TrimmedThrough, m.SealedThrough)
	}
	bytes, rows := m.TrimmedBytes, m.TrimmedRows
	for i, g := range m.Generations {
		bytes, rows = bytes+g.Bytes, rows+g.Rows
		switch {
		case g.Number != m.TrimmedThrough+1+uint64(i):
			return fmt.Errorf("generation %d stands where %d is due", g.Number, m.TrimmedThrough+1+uint64(i))
		case g.Bytes < 0 || g.Rows < 0 || g.CumBytes != bytes || g.CumRows != rows:
			return fmt.Errorf("generation %d: its cumulative bytes or rows are not the sum of its own and the earlier ones", g.Number)
		case g.Epoch == 0 || g.Epoch > m.Epoch:
			return fmt.Errorf("generation %d: epoch %d of %d", g.Number, g.Epoch, m.Epoch)
		case (g.Rows > 0) != (g.Path != ""):
			return fmt.Errorf("generation %d: %d rows in file %q", g.Number, g.Rows, g.Path)
		}
	}
	if bytes != m.Bytes || rows != m.Rows {
		return fmt.Errorf("%d bytes and %d rows are not the sums %d and %d over the generations", m.Bytes, m.Rows, bytes, rows)
	}
	return nil
}

// Keys. The inverted number makes the newest version the first key of an ordered list.

const keyDigits = 20

func manifestName(version uint64) string {
	return fmt.Sprintf("%0*d.json", keyDigits, math.MaxUint64-version)
}

// parseManifestName is the inverse of manifestName; it is false for any other name.
func parseManifestName(name string) (version uint64, ok bool) {
	digits, isJSON := strings.CutSuffix(name, ".json")
	if !isJSON || len(digits) != keyDigits {
		return 0, false
	}
	inverted, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, false
	}
	return math.MaxUint64 - inverted, true
}

// generationName is the name of a generation's file; the id makes every attempt's name fresh.
func generationName(number uint64, id string) string {
	return fmt.Sprintf("%0*d-%s.parquet", keyDigits, number, id)
}

// parseGenerationName returns the generation that a file was made for; it is false for any other name.
func parseGenerationName(name string) (number uint64, ok bool) {
	digits, _, found := strings.Cut(name, "-")
	if !found || len(digits) != keyDigits || !strings.HasSuffix(name, ".parquet") {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && number > 0
}

// shardNameMax keeps keys far below the 1,024 bytes an S3 key may have.
const shardNameMax = 200

// CheckName refuses a shard name that cannot be one path segment, or that other engines' vacuum would skip or hide.
func CheckName(shard string) error {
	if shard == "" || len(shard) > shardNameMax || strings.HasPrefix(shard, "_") || strings.HasPrefix(shard, ".") {
		return fmt.Errorf("shard name %q: it must have 1 to %d bytes and not begin with '_' or '.'", shard, shardNameMax)
	}
	for _, r := range shard {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.=", r) {
			continue
		}
		return fmt.Errorf("shard name %q: %q is not allowed; use letters, digits, '-', '_', '.' and '='", shard, r)
	}
	return nil
}
