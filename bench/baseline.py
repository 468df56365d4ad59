"""One measurement of a baseline: reads a job from standard input, prints its seconds and the peak memory of this process."""

import json
import os
import resource
import sys
import time


def duckdb_job(job):
    import duckdb

    connection = duckdb.connect()
    connection.execute("set enable_progress_bar = false")
    connection.execute(f"set threads = {job['threads']}")
    began = time.monotonic()
    connection.execute(job["sql"])
    return time.monotonic() - began


def delta_rs_job(job):
    import deltalake

    for i, file in enumerate(job["files"]):
        os.link(file, os.path.join(job["dir"], f"part-{i:06d}.parquet"))
    deltalake.convert_to_deltalake(job["dir"])
    table = deltalake.DeltaTable(job["dir"])
    began = time.monotonic()
    done = table.optimize.compact(
        target_size=128 << 20,
        max_concurrent_tasks=job["threads"],
        writer_properties=deltalake.WriterProperties(compression="ZSTD", compression_level=3),
    )
    took = time.monotonic() - began
    if done["numFilesRemoved"] != len(job["files"]):
        raise SystemExit(f"delta-rs compacted {done['numFilesRemoved']} of {len(job['files'])} files")
    return took


def delta_rs_merge_job(job):
    import deltalake
    import pyarrow
    import pyarrow.parquet

    for i, file in enumerate(job["files"]):
        os.link(file, os.path.join(job["dir"], f"part-{i:06d}.parquet"))
    deltalake.convert_to_deltalake(job["dir"])
    table = deltalake.DeltaTable(job["dir"])
    began = time.monotonic()
    changes = pyarrow.concat_tables([pyarrow.parquet.read_table(file, partitioning=None) for file in job["changes"]])
    columns = {name: f"s.{name}" for name in changes.column_names if name != "_op"}
    table.merge(
        changes,
        predicate="t.id = s.id",
        source_alias="s",
        target_alias="t",
        writer_properties=deltalake.WriterProperties(compression="ZSTD", compression_level=3),
    ).when_matched_delete("s._op = 'd'").when_matched_update(columns).when_not_matched_insert(
        columns, "s._op is null"
    ).execute()
    return time.monotonic() - began


job = json.load(sys.stdin)
seconds = {"duckdb": duckdb_job, "delta-rs": delta_rs_job, "delta-rs-merge": delta_rs_merge_job}[job["kind"]](job)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps({"seconds": seconds, "peak_mib": peak}))
