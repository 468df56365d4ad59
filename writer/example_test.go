package writer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/writer"
)

var orders = arrow.NewSchema([]arrow.Field{
	{Name: "order", Type: arrow.PrimitiveTypes.Int64},
	{Name: "item", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

func Example() {
	ctx := context.Background()
	root := newRootWithTable(ctx, "orders") // in a shell: tidemark table create orders --like orders.parquet
	defer os.RemoveAll(root)

	w, err := writer.Claim(ctx, writer.Config{Root: root, Table: "orders", Shard: "till-1", Label: "example"})
	if err != nil {
		log.Fatal(err)
	}
	record, _, err := array.RecordFromJSON(memory.DefaultAllocator, orders,
		strings.NewReader(`[{"order": 1, "item": "tea"}, {"order": 2, "item": "milk"}]`))
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Append(ctx, record); err != nil {
		log.Fatal(err)
	}
	sealed, err := w.Seal(ctx)
	if err != nil {
		log.Fatal(err) // in a program: look for *writer.FencedError, else seal again
	}
	fmt.Printf("generation %d of shard %s: %d rows are durable\n", sealed.Generation, sealed.Shard, sealed.Rows)
	if err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: generation 1 of shard till-1: 2 rows are durable
}

func newRootWithTable(ctx context.Context, name string) string {
	root, err := os.MkdirTemp("", "tidemark-example-")
	if err != nil {
		log.Fatal(err)
	}
	store, err := objstore.Open(ctx, root, objstore.Options{Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger()})
	if err != nil {
		log.Fatal(err)
	}
	columns, err := schema.FromArrow(orders)
	if err != nil {
		log.Fatal(err)
	}
	_, err = table.Create(ctx, store, name, table.CreateOptions{Schema: columns}, table.Deps{Clock: clock.System(), Random: random.New()})
	if err != nil {
		log.Fatal(err)
	}
	return root
}
