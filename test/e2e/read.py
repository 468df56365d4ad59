"""Reads a Delta table with a reader that shares no code with Tidemark and prints one JSON object.

usage: read.py delta-rs|duckdb TABLE QUERY

TABLE is a directory or s3://bucket/path; then AWS_ENDPOINT_URL and the other AWS variables say how it is reached.

QUERY is SQL over a relation called t; it must return one row. Both readers answer it: DuckDB through its delta
extension, delta-rs by handing its Arrow data to DuckDB's SQL engine (the files are then chosen and read by delta-rs).
"""

import datetime
import decimal
import importlib
import json
import os
import sys
import urllib.parse

import duckdb


def load(connection, name):
    package = os.path.dirname(importlib.import_module("duckdb_extension_" + name).__file__)
    connection.execute("load '%s/extensions/v%s/%s.duckdb_extension'" % (package, duckdb.__version__, name))


def reach_s3(connection):
    load(connection, "httpfs")
    endpoint = urllib.parse.urlparse(os.environ["AWS_ENDPOINT_URL"])
    connection.execute(
        "create secret (type s3, key_id '%s', secret '%s', region '%s', endpoint '%s', url_style 'path', use_ssl %s)"
        % (
            os.environ["AWS_ACCESS_KEY_ID"],
            os.environ["AWS_SECRET_ACCESS_KEY"],
            os.environ["AWS_REGION"],
            endpoint.netloc,
            str(endpoint.scheme == "https").lower(),
        )
    )


def relation(reader, connection, table):
    if reader == "duckdb":
        if table.startswith("s3://"):
            reach_s3(connection)
        load(connection, "delta")
        connection.execute("create view t as select * from delta_scan('%s')" % table.replace("'", "''"))
    elif reader == "delta-rs":
        from deltalake import DeltaTable

        connection.register("t", DeltaTable(table).to_pyarrow_dataset())
    else:
        raise SystemExit("unknown reader " + reader)


def plain(value):
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # sums of 128 bits come as doubles; those of the tests are exact below 2^53
    return value


def main():
    reader, table, query = sys.argv[1:]
    connection = duckdb.connect()
    relation(reader, connection, table)
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    rows = cursor.fetchall()
    if len(rows) != 1:
        raise SystemExit("the query returned %d rows, not one" % len(rows))
    print(json.dumps({name: plain(value) for name, value in zip(names, rows[0])}))


main()
