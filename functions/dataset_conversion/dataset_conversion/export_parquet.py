"""Write the results of a run as Parquet: a sink of the only function that has a Parquet library."""

import tempfile
from collections.abc import Sequence
from typing import IO, Any, BinaryIO, cast

from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.exported_results import export_folder, put_once, put_report, read_results
from coordination.sink_attempts import SinkOrder, attempt_sink
from coordination.wake_ups import WakeUp

# Longer than the function may run.
_LEASE_SECONDS = 130
_SPARE_SECONDS = 20.0


def export_parquet(environment: Environment, project: str, sink_id: str, deadline: Deadline) -> None:
    """Make an attempt at a queued sink of Parquet: `<prefix>/<run>/results.parquet`, then `report.json`.

    Columns: record, trial, evaluator, status, score, passed, error, in the order of the records. The bytes pass through
    a temporary file, a row group a page of results; the same results make the same bytes, so an attempt that died is
    repeated without harm.

    Raises
    ------
    coordination.leases.LeaseLostError
        Somebody took over.
    """

    def act(order: SinkOrder) -> None:
        folder = export_folder(order)
        with tempfile.TemporaryFile() as results:
            _write_results(order, results, deadline)
            order.require_run()
            key = f"{folder}/results.parquet"
            put_once(environment.objects, key, cast("BinaryIO", results), "application/vnd.apache.parquet")
        put_report(order, folder)

    attempt_sink(environment, WakeUp("conversion", "sink", project, sink_id), _LEASE_SECONDS, act)


def _write_results(order: SinkOrder, results: IO[bytes], deadline: Deadline) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            pa.field("record", pa.string(), nullable=False),
            pa.field("trial", pa.int32(), nullable=False),
            pa.field("evaluator", pa.string(), nullable=False),
            pa.field("status", pa.string(), nullable=False),
            pa.field("score", pa.float64()),
            pa.field("passed", pa.bool_()),
            pa.field("error", pa.string()),
        ],
        metadata={"evalward.run": str(order.run_id)},
    )

    def to_batch(rows: Sequence[dict[str, Any]]) -> Any:
        return pa.RecordBatch.from_pylist(list(rows), schema=schema)

    with pq.ParquetWriter(results, schema, compression="zstd") as writer:
        for page in read_results(order, deadline, _SPARE_SECONDS):
            writer.write_batch(to_batch(page))
