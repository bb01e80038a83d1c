"""Write the results of a run as Parquet: a sink of the only function that has a Parquet library."""

from functools import partial
from typing import IO, Any

from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.exported_results import put_export, read_results
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
        write = partial(_write_results, order, deadline)
        put_export(order, "results.parquet", "application/vnd.apache.parquet", write)

    attempt_sink(environment, WakeUp("conversion", "sink", project, sink_id), _LEASE_SECONDS, act)


def _write_results(order: SinkOrder, deadline: Deadline, results: IO[bytes]) -> None:
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
    make_batch: Any = pa.RecordBatch.from_pylist
    with pq.ParquetWriter(results, schema, compression="zstd") as writer:
        for page in read_results(order, deadline, _SPARE_SECONDS):
            writer.write_batch(make_batch(page, schema=schema))
