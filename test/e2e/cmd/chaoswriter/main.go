// Command chaoswriter is one of the writers of the chaos suite. It appends to one shard of the table events and to one
// bucket of the upsert table states until it is killed, and notes every acknowledgement in a file, so that the suite
// knows afterwards what must be there.
//
// A row is told apart by its number: life × 1,000,000,000 + a counter, so that no life ever uses a number again. Each
// line of the file is an acknowledged seal:
//
//	events FROM TO           rows numbered FROM to TO-1 are in events, once
//	states KEY NUMBER u|d    the newest version of a key in this seal, for each of its keys
//
// Before a seal it notes the deletes in it, which may happen although nobody acknowledges them:
//
//	intent KEY NUMBER
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
	"tidemark/writer"
)

const (
	numbersPerLife = 1_000_000_000
	rowsPerSeal    = 200
	keysPerBucket  = 50
	buckets        = 4
	// deleteOneIn is how often a version of a state is a delete.
	deleteOneIn = 10
	// retryPause is how long a writer waits after an error that is not its end: the store or etcd is being cut off.
	retryPause = 100 * time.Millisecond
)

var (
	eventSchema = arrow.NewSchema([]arrow.Field{
		{Name: "number", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	stateSchema = arrow.NewSchema([]arrow.Field{
		{Name: "key", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "number", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
)

func main() {
	root, etcd := flag.String("root", "", "the root"), flag.String("etcd", "", "endpoints, comma separated")
	s3 := flag.String("s3-endpoint", "", "endpoint of the S3 server")
	index, life := flag.Int("writer", 0, "0 to 3"), flag.Int64("life", 1, "raised with every start")
	acks := flag.String("acks", "", "file that acknowledgements are added to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, writer.Config{Root: *root, Etcd: strings.Split(*etcd, ","), S3: writer.S3{Endpoint: *s3, PathStyle: true}}, *index, *life, *acks); err != nil {
		fmt.Fprintln(os.Stderr, "chaoswriter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, config writer.Config, index int, life int64, path string) error {
	acks, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer acks.Close()
	w := &chaosWriter{index: index, acks: acks, number: life * numbersPerLife, random: rand.New(rand.NewPCG(uint64(index), uint64(life)))}
	if w.keys, err = keysOf(index); err != nil {
		return err
	}
	config.Label = fmt.Sprintf("chaos writer %d, life %d", index, life)
	w.events, err = claim(ctx, config, "events", fmt.Sprintf("writer-%d", index))
	if err == nil {
		w.states, err = claim(ctx, config, "states", rowkey.BucketShard(index))
	}
	for err == nil && ctx.Err() == nil {
		if err = w.round(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, writer.ErrFenced) && !errors.Is(err, writer.ErrClosed) {
			time.Sleep(retryPause) // what was not sealed is kept, and sealed by the next round
			err = nil
		}
	}
	if ctx.Err() != nil {
		return nil // asked to stop: whatever is not acknowledged by now is nobody's concern
	}
	return err
}

// claim claims a shard, again as long as the store does not answer.
func claim(ctx context.Context, c writer.Config, table, shard string) (*writer.Writer, error) {
	c.Table, c.Shard = table, shard
	for {
		w, err := writer.Claim(ctx, c)
		if err == nil || ctx.Err() != nil {
			return w, err
		}
		fmt.Fprintln(os.Stderr, "chaoswriter: claiming again:", err)
		time.Sleep(retryPause)
	}
}

// keysOf are the keys of a writer's bucket.
func keysOf(bucket int) ([]int64, error) {
	encoder, err := rowkey.NewEncoder(stateSchema, []string{"key"})
	if err != nil {
		return nil, err
	}
	var keys []int64
	for candidate := int64(0); len(keys) < keysPerBucket; candidate++ {
		record := build(stateSchema, func(b *array.RecordBuilder) {
			b.Field(0).(*array.Int64Builder).Append(candidate)
			b.Field(1).AppendNull()
			b.Field(2).AppendNull()
		})
		var encoded rowkey.Keys
		err := encoder.Encode(record, &encoded)
		record.Release()
		if err != nil {
			return nil, err
		}
		if rowkey.Bucket(encoded.At(0), buckets) == bucket {
			keys = append(keys, candidate)
		}
	}
	return keys, nil
}

func build(s *arrow.Schema, fill func(*array.RecordBuilder)) arrow.Record {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	fill(b)
	return b.NewRecord()
}

type chaosWriter struct {
	index          int
	events, states *writer.Writer
	acks           *os.File
	number         int64
	keys           []int64
	random         *rand.Rand

	eventsFrom int64            // first number appended to events and not acknowledged; 0 for none
	pending    map[int64]string // newest version of each key appended and not acknowledged: key, number, u or d
}

// round appends to both tables what is not waiting from an earlier round, seals both, and notes what is acknowledged.
func (w *chaosWriter) round(ctx context.Context) error {
	if w.eventsFrom == 0 {
		from := w.number
		record := build(eventSchema, func(b *array.RecordBuilder) {
			for range rowsPerSeal {
				b.Field(0).(*array.Int64Builder).Append(w.number)
				b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("%d %d", w.index, w.number))
				w.number++
			}
		})
		err := w.events.Append(ctx, record)
		record.Release()
		if err != nil {
			return err
		}
		w.eventsFrom = from
	}
	to := w.eventsFrom + rowsPerSeal
	if _, err := w.events.Seal(ctx); err != nil {
		return err
	}
	if err := w.note("events %d %d\n", w.eventsFrom, to); err != nil {
		return err
	}
	w.eventsFrom = 0
	return w.stateRound(ctx)
}

func (w *chaosWriter) stateRound(ctx context.Context) error {
	if w.pending == nil {
		pending := map[int64]string{}
		record := build(stateSchema, func(b *array.RecordBuilder) {
			for range rowsPerSeal {
				key, op := w.keys[w.random.IntN(len(w.keys))], "u"
				if w.random.IntN(deleteOneIn) == 0 {
					op = "d"
				}
				b.Field(0).(*array.Int64Builder).Append(key)
				b.Field(1).(*array.Int64Builder).Append(w.number)
				b.Field(2).(*array.StringBuilder).Append(op)
				pending[key] = fmt.Sprintf("%d %d %s\n", key, w.number, op)
				w.number++
			}
		})
		err := w.states.Append(ctx, record)
		record.Release()
		if err != nil {
			return err
		}
		w.pending = pending
		var intents strings.Builder
		for _, version := range pending {
			if gone, ok := strings.CutSuffix(version, " d\n"); ok {
				fmt.Fprintf(&intents, "intent %s\n", gone)
			}
		}
		if err := w.note("%s", intents.String()); err != nil {
			return err
		}
	}
	if _, err := w.states.Seal(ctx); err != nil {
		return err
	}
	var lines strings.Builder
	for _, version := range w.pending {
		lines.WriteString("states " + version)
	}
	w.pending = nil
	return w.note("%s", lines.String())
}

// note adds to the file in one write, so that a kill leaves whole lines.
func (w *chaosWriter) note(format string, args ...any) error {
	_, err := w.acks.WriteString(fmt.Sprintf(format, args...))
	return err
}
