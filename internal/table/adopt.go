package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/schema"
)

// Adopt makes an append table of a Delta table that another engine made: one commit adds the settings to its properties.
// Nothing else changes: files, columns and id stay, and other engines go on reading and writing it. Properties are
// further ones, such as tidemark.policy.max_wait.
//
// A table that requires what Tidemark does not implement is refused before anything is written, with the name of what it
// requires. The errors are ErrUnknownTable (as *UnknownTableError), ErrTableExists for a table that is Tidemark's already,
// ErrDropped, *deltalog.UnsupportedError, *DefinitionError and what reading the log and the schema may give.
func Adopt(ctx context.Context, s objstore.Store, name string, properties map[string]string, d Deps) (*Table, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := checkFurther(name, properties); err != nil {
		return nil, err
	}
	log := d.open(s, name)
	for range planRounds {
		snapshot, err := log.Snapshot(ctx)
		if errors.Is(err, deltalog.ErrNoTable) {
			return nil, unknown(ctx, s, name)
		}
		if err != nil {
			return nil, err
		}
		if err := adoptable(name, snapshot); err != nil {
			return nil, err
		}
		if err := errors.Join(checkOuter(ctx, s, name), checkInner(ctx, s, name, d)); err != nil {
			return nil, err
		}
		m := snapshot.Metadata
		settings := Settings{Mode: Append, Incarnation: 1}
		m.Configuration = maps.Clone(m.Configuration)
		if m.Configuration == nil {
			m.Configuration = map[string]string{}
		}
		if _, set := m.Configuration[compactFiles]; !set {
			m.Configuration[compactFiles] = "0"
		}
		maps.Copy(m.Configuration, properties)
		maps.Copy(m.Configuration, settings.properties(m.ID))
		res, err := log.Commit(ctx, deltalog.Intent{
			TableID: m.ID, Read: snapshot, Metadata: &m,
			Info: deltalog.CommitInfo{Operation: "SET TBLPROPERTIES", Parameters: map[string]string{
				"mode": string(settings.Mode), "incarnation": strconv.FormatInt(settings.Incarnation, 10),
			}},
		})
		var again *deltalog.PlanAgainError
		if errors.As(err, &again) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return view(name, log, res.Snapshot, nil)
	}
	return nil, fmt.Errorf("table %s: not adopted: others keep changing its description; try again", name)
}

// compactFiles is the policy of compaction. Two engines must not compact one table: delta-rs 1.6.6 does not notice that files
// which it joins have just been joined by another, and then their rows are there twice. A table that is adopted has another
// engine, so Tidemark compacts it only when it is told to.
const compactFiles = deltalog.PropertyPolicy + "compact_files"

// adoptable says why a table cannot be adopted; nil if it can.
func adoptable(name string, snapshot *deltalog.Snapshot) error {
	if Adopted(snapshot.Metadata) {
		settings, err := ParseSettings(snapshot.Metadata)
		if err == nil && settings.Dropped {
			return fmt.Errorf("table %s: %w", name, ErrDropped)
		}
		return errors.Join(fmt.Errorf("table %s is Tidemark's already: %w", name, ErrTableExists), err)
	}
	if err := snapshot.Writable(); err != nil {
		return err
	}
	columns, err := schema.Parse(snapshot.Metadata.SchemaString)
	if err != nil {
		return fmt.Errorf("table %s cannot be adopted: %w", name, err)
	}
	if err := checkColumns(name, columns); err != nil {
		return err
	}
	if err := partitionable(name, columns, snapshot.Metadata.PartitionColumns); err != nil {
		return err
	}
	for f := range snapshot.Files() {
		if f.Absolute() {
			return &deltalog.UnsupportedError{Table: name, Name: "files outside its folder, such as " + f.Path, Why: "a shallow clone's files belong to another table; make a deep clone"}
		}
	}
	return nil
}
