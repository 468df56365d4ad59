"""What independent engines make of Delta tables, for interop_test.go. Prints one JSON value.

interop.py probe              which versions are installed
interop.py read DIR...        the tables as delta-rs and as DuckDB's delta extension see them
interop.py append DIR...      appends one row to each with delta-rs, prints "ok" or the error of each
interop.py write DIR          makes tables below DIR with delta-rs and says what is in them
"""

import datetime
import json
import os
import sys

import deltalake
import duckdb
import duckdb_extension_delta
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


def duck():
    connection = duckdb.connect()
    package = os.path.dirname(duckdb_extension_delta.__file__)
    connection.execute("load '%s/extensions/v%s/delta.duckdb_extension'" % (package, duckdb.__version__))
    return connection


def summary(connection, relation):
    rows, total = connection.execute("select count(*), coalesce(sum(id), 0) from " + relation).fetchone()
    return {"rows": rows, "sum": int(total)}


def seen_by_delta_rs(path):
    table = DeltaTable(path)
    connection = duckdb.connect()
    connection.register("t", pa.table(table.to_pyarrow_table()))
    protocol = table.protocol()
    return dict(
        summary(connection, "t"),
        version=table.version(),
        files=sorted(pa.table(table.get_add_actions()).column("path").to_pylist()),
        protocol=[protocol.min_reader_version, protocol.min_writer_version],
        operation=table.history(1)[0].get("operation") if os.path.exists(path + "/_delta_log/%020d.json" % table.version()) else "",
    )


def read_one(path):
    seen = {}
    for reader, see in [
        ("delta-rs", lambda: seen_by_delta_rs(path)),
        ("duckdb", lambda: summary(duck(), "delta_scan('%s')" % path)),
    ]:
        try:
            seen[reader] = see()
        except Exception as e:
            seen[reader] = {"error": "%s: %s" % (type(e).__name__, e)}
    return seen


def append_one(path):
    try:
        write_deltalake(path, pa.table({"id": pa.array([1000], pa.int64())}), mode="append", schema_mode="merge")
    except Exception as e:
        return "%s: %s" % (type(e).__name__, e)
    return "ok"


def ids(start, n):
    return pa.table({"id": pa.array(range(start, start + n), pa.int64())})


def write(root):
    plain = root + "/plain"
    for i in range(23):
        properties = CommitProperties(app_transactions=[Transaction("app", i, 7)])
        write_deltalake(plain, ids(10 * i, 10), mode="append", commit_properties=properties)
        if i == 11:
            DeltaTable(plain).create_checkpoint()

    rewritten = root + "/rewritten"
    for i in range(8):
        write_deltalake(rewritten, ids(10 * i, 10), mode="append", configuration={"delta.checkpointInterval": "100"})
    DeltaTable(rewritten).delete("id < 25")
    DeltaTable(rewritten).optimize.compact()
    DeltaTable(rewritten).create_checkpoint()

    odd = root + "/odd"
    names = ["a b", "c%d", "é", "x:y", "s/t", "k=v", "q?#", "plain"]
    table = pa.table({"id": pa.array(range(len(names)), pa.int64()), "name": names})
    write_deltalake(odd, table, partition_by=["name"])
    write_deltalake(odd, pa.table({"id": pa.array([99], pa.int64()), "name": pa.array([None], pa.string())}), mode="append")
    DeltaTable(odd).create_checkpoint()

    times = root + "/times"
    at = datetime.datetime(2001, 2, 3, 4, 5, 6)
    write_deltalake(times, pa.table({"id": pa.array([5], pa.int64()), "at": pa.array([at], pa.timestamp("us"))}))

    return {name: seen_by_delta_rs(root + "/" + name) for name in ["plain", "rewritten", "odd", "times"]}


commands = {
    "probe": lambda: [deltalake.__version__, duckdb.__version__],
    "read": lambda *paths: [read_one(path) for path in paths],
    "append": lambda *paths: [append_one(path) for path in paths],
    "write": write,
}
print(json.dumps(commands[sys.argv[1]](*sys.argv[2:])))
