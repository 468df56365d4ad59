package demo

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
)

var (
	typeTime  = &arrow.TimestampType{Unit: arrow.Microsecond}
	typePrice = &arrow.Decimal128Type{Precision: 10, Scale: 2}
)

// orderFields are what both tables say about an order.
var orderFields = []arrow.Field{
	{Name: "customer", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "country", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "product", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "quantity", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "price", Type: typePrice, Nullable: true},
	{Name: "status", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "channel", Type: arrow.BinaryTypes.String, Nullable: true},
}

// EventSchema is that of the append table: one row for everything that happens to an order.
var EventSchema = arrow.NewSchema(append([]arrow.Field{
	{Name: "event_id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "order_id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "occurred_at", Type: typeTime, Nullable: true},
}, orderFields...), nil)

// StateSchema is that of the upsert table: the present state of every order that is not forgotten.
var StateSchema = arrow.NewSchema(stateFields, nil)

var stateFields = append([]arrow.Field{
	{Name: "order_id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "updated_at", Type: typeTime, Nullable: true},
}, orderFields...)

// stateRowSchema is that of the rows written to it.
var stateRowSchema = arrow.NewSchema(append(stateFields[:len(stateFields):len(stateFields)],
	arrow.Field{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true}), nil)

const (
	// openOrdersMax bounds what a generator remembers; more orders in flight would make the data no more interesting.
	openOrdersMax = 4096
	// rowsPerStepMax is the most rows that one step of an order makes: an event, a version, and another version.
	rowsPerStepMax = 3
	// idBlock is how many order ids are tried at a time when looking for those of a bucket.
	idBlock = 4096
	// epochMicros is when the demo's shop opened, 2026-01-05T08:00:00, so that a seed always gives the same data.
	epochMicros = 1_767_600_000_000_000
)

// order is one order in flight.
type order struct {
	id                                  int64
	customer, country, product, channel string
	quantity                            int32
	cents                               int64
	status                              status
	forgotten                           bool
	at                                  int64 // last change, in microseconds
	row                                 merged
}

// merged is what the state table holds of an order once everything generated so far is merged.
type merged struct {
	live     bool
	sequence int64
	hash     uint64
}

// fold applies one version to it, as the table does: the sequence decides, ties go to the later row, and a delete takes
// away what is not newer than itself. It returns what that adds to the sum of the table.
func (m *merged) fold(sequence int64, deleted bool, hash uint64) Sum {
	if m.live && sequence < m.sequence || deleted && !m.live {
		return Sum{}
	}
	change := Sum{}
	if m.live {
		change = Sum{Rows: -1, Hash: -m.hash}
	}
	*m = merged{live: !deleted, sequence: sequence, hash: hash}
	if m.live {
		change = change.Plus(Sum{Rows: 1, Hash: hash})
	}
	return change
}

// Generator makes the rows of one writer, always the same for one seed, and keeps account of what the tables must hold
// once all of them are merged. It makes about a million rows a second and is for one goroutine.
//
// Orders are placed, paid, packed, shipped and delivered, or cancelled, or returned; some are forgotten. Every step is an
// event, and a version of the order's state. A few versions come twice with the same sequence, or late with an older one.
type Generator struct {
	writer, writers int
	seed            uint64
	now             int64 // of the generated world, in microseconds
	events          int64

	ids       []int64 // order ids of this writer's bucket, not used yet
	idNext    int64   // first id not tried yet
	idEncoder *rowkey.Encoder

	open    []*order
	touched []version // of the batch being made
	hashes  []uint64

	mem          memory.Allocator
	eventBuilder *array.RecordBuilder
	stateBuilder *array.RecordBuilder
	eventRow     eventColumns
	stateRow     stateColumns
	eventSum     Sum
	stateSum     Sum
}

// version is one row of the state table in the making.
type version struct {
	order    *order
	sequence int64
	deleted  bool
}

// NewGenerator makes the generator of one of several writers. The writer's orders are those of the bucket of its number,
// so that each writer can write one shard of both tables.
func NewGenerator(mem memory.Allocator, seed uint64, writer, writers int) (*Generator, error) {
	if writers < 1 || writer < 0 || writer >= writers {
		return nil, fmt.Errorf("demo: writer %d of %d", writer, writers)
	}
	encoder, err := rowkey.NewEncoder(StateSchema, []string{"order_id"})
	if err != nil {
		return nil, err
	}
	g := &Generator{writer: writer, writers: writers, mem: mem, now: epochMicros, idNext: 1, idEncoder: encoder,
		seed:         mix(seed) + mix(uint64(writer)),
		eventBuilder: array.NewRecordBuilder(mem, EventSchema), stateBuilder: array.NewRecordBuilder(mem, stateRowSchema)}
	g.eventRow, g.stateRow = eventColumnsOf(g.eventBuilder), stateColumnsOf(g.stateBuilder)
	return g, nil
}

// Release frees the builders.
func (g *Generator) Release() {
	g.eventBuilder.Release()
	g.stateBuilder.Release()
}

// Expected is what the rows of this generator so far add up to in the merged tables.
func (g *Generator) Expected() (events, states Sum) { return g.eventSum, g.stateSum }

// draw returns a number below n. The modulo's bias does not matter here.
func (g *Generator) draw(n uint64) uint64 {
	g.seed += 0x9e3779b97f4a7c15
	return mix(g.seed) % n
}

// Next makes at most rows rows, about half of them for each table; the caller releases both records.
func (g *Generator) Next(rows int) (events, states arrow.Record, err error) {
	g.touched = g.touched[:0]
	for _, b := range []*array.RecordBuilder{g.eventBuilder, g.stateBuilder} {
		b.Reserve(rows/2 + 1)
	}
	for made := 0; made+rowsPerStepMax <= rows; {
		o, err := g.step()
		if err != nil {
			return nil, nil, err
		}
		g.eventRow.add(g.writer+1+int(g.events)*g.writers, o)
		g.events++
		g.version(o, o.at)
		made += 2
		switch again := g.draw(100); {
		case o.forgotten:
		case again == 0: // a version that comes twice, changed: the later one counts
			o.quantity++
			g.version(o, o.at)
			made++
		case again == 1: // an older version that comes late: it does not count
			g.version(o, o.at-1)
			made++
		}
	}
	events, states = g.eventBuilder.NewRecord(), g.stateBuilder.NewRecord()
	if err := g.account(events, states); err != nil {
		events.Release()
		states.Release()
		return nil, nil, err
	}
	return events, states, nil
}

// step moves one order on, or places a new one.
func (g *Generator) step() (*order, error) {
	g.now += 1 + int64(g.draw(40_000))
	if len(g.open) < openOrdersMax && (len(g.open) == 0 || g.draw(4) == 0) {
		return g.place()
	}
	i := g.draw(uint64(len(g.open)))
	o := g.open[i]
	o.at = g.now
	dice := g.draw(100)
	for _, step := range steps[o.status] {
		if dice < step.weight {
			o.status = step.to
			return o, nil
		}
		dice -= step.weight
	}
	// Half of the orders that have come to rest are forgotten; the others stay as they are, and out of sight.
	o.forgotten = g.draw(2) == 0
	last := len(g.open) - 1
	g.open[i] = g.open[last]
	g.open = g.open[:last]
	return o, nil
}

func (g *Generator) place() (*order, error) {
	if len(g.ids) == 0 {
		if err := g.findIDs(); err != nil {
			return nil, err
		}
	}
	p := products[g.draw(uint64(len(products)))]
	o := &order{
		id: g.ids[0], at: g.now,
		customer: customers[g.draw(uint64(len(customers)))],
		country:  countries[min(g.draw(uint64(len(countries))), g.draw(uint64(len(countries))))], // the first are the most frequent
		product:  p.name, cents: p.cents,
		quantity: int32(1 + g.draw(4)*g.draw(3)),
		channel:  channels[g.draw(uint64(len(channels)))],
	}
	g.ids = g.ids[1:]
	g.open = append(g.open, o)
	return o, nil
}

// findIDs tries order ids one after the other and keeps those of the writer's bucket.
func (g *Generator) findIDs() error {
	g.ids = g.ids[:0]
	b := array.NewRecordBuilder(g.mem, StateSchema)
	defer b.Release()
	for _, f := range b.Fields()[1:] {
		f.AppendNulls(idBlock)
	}
	for i := range idBlock {
		b.Field(0).(*array.Int64Builder).Append(g.idNext + int64(i))
	}
	rec := b.NewRecord()
	defer rec.Release()
	var keys rowkey.Keys
	if err := g.idEncoder.Encode(rec, &keys); err != nil {
		return err
	}
	for i := range keys.Len() {
		if rowkey.Bucket(keys.At(i), g.writers) == g.writer {
			g.ids = append(g.ids, g.idNext+int64(i))
		}
	}
	g.idNext += idBlock
	if len(g.ids) == 0 {
		return g.findIDs()
	}
	return nil
}

func (g *Generator) version(o *order, sequence int64) {
	g.touched = append(g.touched, version{order: o, sequence: sequence, deleted: o.forgotten})
	g.stateRow.add(sequence, o)
}

// account folds the batch into what the tables must hold.
func (g *Generator) account(events, states arrow.Record) error {
	sum, err := Checksum(events)
	if err != nil {
		return err
	}
	g.eventSum = g.eventSum.Plus(sum)
	if g.hashes, err = rowHashes(states, g.hashes); err != nil {
		return err
	}
	for i, v := range g.touched {
		g.stateSum = g.stateSum.Plus(v.order.row.fold(v.sequence, v.deleted, g.hashes[i]))
	}
	return nil
}

// eventColumns are the builders of an event, typed once.
type eventColumns struct {
	event *array.Int64Builder
	order *array.Int64Builder
	at    *array.TimestampBuilder
	orderColumns
}

func eventColumnsOf(b *array.RecordBuilder) eventColumns {
	return eventColumns{b.Field(0).(*array.Int64Builder), b.Field(1).(*array.Int64Builder), b.Field(2).(*array.TimestampBuilder), orderColumnsOf(b, 3)}
}

func (c *eventColumns) add(id int, o *order) {
	c.event.Append(int64(id))
	c.order.Append(o.id)
	c.at.Append(arrow.Timestamp(o.at))
	c.orderColumns.add(o)
}

// stateColumns are the builders of a version.
type stateColumns struct {
	order *array.Int64Builder
	at    *array.TimestampBuilder
	orderColumns
	op *array.StringBuilder
}

func stateColumnsOf(b *array.RecordBuilder) stateColumns {
	return stateColumns{b.Field(0).(*array.Int64Builder), b.Field(1).(*array.TimestampBuilder), orderColumnsOf(b, 2), b.Field(9).(*array.StringBuilder)}
}

func (c *stateColumns) add(sequence int64, o *order) {
	c.order.Append(o.id)
	c.at.Append(arrow.Timestamp(sequence))
	if o.forgotten {
		c.orderColumns.addNulls()
		c.op.Append("d")
		return
	}
	c.orderColumns.add(o)
	c.op.Append("u")
}

type orderColumns struct {
	customer, country, product *array.StringBuilder
	quantity                   *array.Int32Builder
	price                      *array.Decimal128Builder
	status, channel            *array.StringBuilder
}

func orderColumnsOf(b *array.RecordBuilder, at int) orderColumns {
	text := func(i int) *array.StringBuilder { return b.Field(at + i).(*array.StringBuilder) }
	return orderColumns{text(0), text(1), text(2), b.Field(at + 3).(*array.Int32Builder), b.Field(at + 4).(*array.Decimal128Builder), text(5), text(6)}
}

func (c *orderColumns) add(o *order) {
	c.customer.Append(o.customer)
	c.country.Append(o.country)
	c.product.Append(o.product)
	c.quantity.Append(o.quantity)
	c.price.Append(decimal128.FromI64(o.cents * int64(o.quantity)))
	c.status.Append(statusNames[o.status])
	c.channel.Append(o.channel)
}

func (c *orderColumns) addNulls() {
	for _, b := range []array.Builder{c.customer, c.country, c.product, c.quantity, c.price, c.status, c.channel} {
		b.AppendNull()
	}
}
