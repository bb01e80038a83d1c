"""The sample that the demonstration evaluates, and what its scores must be by plain arithmetic.

`samples/support_answers.jsonl` holds 200 answers of a support assistant. Some have no expected answer and some no
usage, so that the report has something to say about coverage.
"""

import io
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean
from typing import Any

_SAMPLE = "samples/support_answers.jsonl"
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

type Row = dict[str, Any]

EVALUATORS: list[dict[str, Any]] = [
    {"name": "exact_match", "params": {"ignore_case": True, "ignore_whitespace": True}},
    {"name": "token_f1"},
    {"id": "answered", "name": "regex_match", "params": {"pattern": "I do not know", "absent": True}},
    {"name": "latency", "params": {"max": 2000}},
]
GATES: list[dict[str, Any]] = [
    {"metric": "token_f1", "stat": "ci_low", "min": 0.7},
    {"metric": "answered", "stat": "mean", "min": 0.9},
    {"metric": "latency", "stat": "mean", "max": 1500},
]


@dataclass(frozen=True, slots=True)
class ExpectedMetric:
    """What a report must say of a metric.

    Attributes
    ----------
    scored
        Records with a score.
    mean
        Of their scores.
    """

    scored: int
    mean: float


def read_sample() -> bytes:
    """Return the sample as JSONL."""
    return files("evalward_local").joinpath(_SAMPLE).read_bytes()


def parse_rows(sample: bytes) -> list[Row]:
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in sample.splitlines()]


def make_parquet(rows: Iterable[Row]) -> bytes:
    """Return the rows as a Parquet file; what a row lacks is null there."""
    # Here only: a stack that shows nothing should not load 60 MB for it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), buffer)
    return buffer.getvalue()


def compute_expected(rows: Iterable[Row]) -> dict[str, ExpectedMetric]:
    """Compute by plain arithmetic what the evaluators must find, without any code of theirs.

    Returns
    -------
    dict
        Metric id -> what its report must say.
    """
    all_rows = list(rows)
    referenced = [row for row in all_rows if "expected" in row]
    return {
        "exact_match": _summarize(_matches(row, _fold) for row in referenced),
        "token_f1": _summarize(
            max(_compute_f1(row["response"], reference) for reference in row["expected"]) for row in referenced
        ),
        "answered": _summarize(float("I do not know" not in row["response"]) for row in all_rows),
        "latency": _summarize(float(row["usage"]["latency_ms"]) for row in all_rows if "usage" in row),
    }


def _summarize(scores: Iterable[float]) -> ExpectedMetric:
    values = list(scores)
    return ExpectedMetric(len(values), fmean(values))


def _matches(row: Row, fold: Callable[[str], str]) -> float:
    return float(fold(row["response"]) in map(fold, row["expected"]))


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _compute_f1(response: str, reference: str) -> float:
    """F1 over the words both texts share, as SQuAD's official script computes it."""
    got, wanted = (
        Counter(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()) for text in (response, reference)
    )
    shared = (got & wanted).total()
    return 2 * shared / (got.total() + wanted.total())
