"""What independent engines see of a Delta table, row by row as text, for partition_test.go. Prints one JSON value.

partitions.py read DIR COLUMN...    the rows as delta-rs and as DuckDB see them, each column as text, sorted
partitions.py make DIR              makes a table partitioned by day with delta-rs
partitions.py write DIR ROUNDS      appends, deletes, compacts and vacuums with delta-rs; prints the ids that it leaves in the table
partitions.py append DIR            tries to append a row; prints "ok" or the error
"""

import datetime
import json
import os
import sys
import time

import duckdb
import duckdb_extension_delta
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError


def duck():
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    package = os.path.dirname(duckdb_extension_delta.__file__)
    connection.execute("load '%s/extensions/v%s/delta.duckdb_extension'" % (package, duckdb.__version__))
    return connection


def texts(connection, relation, columns):
    select = ", ".join('cast("%s" as varchar)' % c for c in columns)
    rows = [list(r) for r in connection.execute("select %s from %s" % (select, relation)).fetchall()]
    return sorted(rows, key=lambda r: [(v is not None, v) for v in r])


def read(path, *columns):
    connection = duck()
    connection.register("t", pa.table(DeltaTable(path).to_pyarrow_table()))
    return {"delta-rs": texts(connection, "t", columns), "DuckDB": texts(connection, "delta_scan('%s')" % path, columns)}


DAYS = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2), None]


def batch(first, n):
    return pa.table({
        "id": pa.array(range(first, first + n), pa.int64()),
        "day": pa.array([DAYS[i % 3] for i in range(n)], pa.date32()),
    })


def make(path):
    write_deltalake(path, batch(1_000_000_000, 3), partition_by=["day"])
    return "ok"


def again(change):
    """Makes a change until it is not refused because others were faster."""
    while True:
        try:
            return change()
        except CommitFailedError:
            pass


def vacuum(path):
    """Vacuums as after the retention, for which the generations' files and the old data files are made to look older."""
    long_ago = time.time() - 30 * 24 * 3600
    for folder, _, names in os.walk(path + "/_shards"):
        for name in names:
            try:
                os.utime(os.path.join(folder, name), (long_ago, long_ago))
            except FileNotFoundError:
                pass  # a temporary file of a put
    again(lambda: DeltaTable(path).vacuum(retention_hours=168, dry_run=False))


def write(path, rounds):
    """Every round adds ten rows, takes the last round's first five away, and now and then rewrites small files and vacuums."""
    left = set(range(1_000_000_000, 1_000_000_003))
    for r in range(int(rounds)):
        first = 2_000_000_000 + 10 * r
        again(lambda: write_deltalake(path, batch(first, 10), mode="append"))
        left |= set(range(first, first + 10))
        gone = range(first - 10, first - 5)
        again(lambda: DeltaTable(path).delete("id >= %d and id < %d" % (gone.start, gone.stop)))
        left -= set(gone)
        if r % 4 == 3:
            again(lambda: DeltaTable(path).optimize.compact())
            vacuum(path)
    return sorted(left)


def append(path):
    try:
        write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="append")
    except Exception as e:
        return str(e)
    return "ok"


print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
