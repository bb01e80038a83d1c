"""Runs as the API takes them."""

from typing import Annotated, Any, Literal
from uuid import UUID

from coordination.datasets import DatasetName
from coordination.evaluator_requests import EvaluatorRequest
from coordination.http.pages import PageQuery
from coordination.models import Instant, QueryModel, RequestModel, ResponseModel, Sha256
from coordination.runs import RunDataset
from coordination.sinks import MAX_SINKS, Sink
from coordination.targets import RecordedTarget, Target
from pydantic import BeforeValidator, Field, StringConstraints
from records.gates import MAX_GATES, Gate

MAX_LABELS = 50
"""Labels of one run."""

type LabelKey = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
]
type LabelValue = Annotated[str, StringConstraints(max_length=200)]


class DatasetReference(RequestModel):
    """A dataset version: by content, or by name and (newest when left out) version."""

    sha256: Sha256 | None = None
    name: DatasetName | None = None
    version: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None


def _name_to_target(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


type SliceKey = Annotated[str, Field(min_length=1, max_length=100)]
MAX_SLICES = 5


class CreateRun(RequestModel):
    """A new run."""

    name: Annotated[str, Field(min_length=1, max_length=200, examples=["support answers, nightly"])]
    dataset: DatasetReference
    evaluators: Annotated[list[EvaluatorRequest], Field(min_length=1, max_length=50)]
    target: Annotated[
        Target,
        BeforeValidator(_name_to_target, json_schema_input_type=Target | Literal["recorded"]),
        Field(description="what makes the outputs; `recorded` is short for its kind"),
    ] = RecordedTarget()
    gates: Annotated[list[Gate], Field(max_length=MAX_GATES, default_factory=list[Gate])]
    sinks: Annotated[
        list[Sink], Field(max_length=MAX_SINKS, default_factory=list[Sink], description="where the outcome goes")
    ]
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_LABELS, default_factory=dict[str, str])]
    trials: Annotated[int, Field(ge=1, le=100, description="a recorded target allows only 1")] = 1
    concurrency: Annotated[
        int, Field(ge=1, le=100, description="target calls at once per shard; a recorded target makes none")
    ] = 8
    slices: Annotated[
        list[SliceKey],
        Field(
            max_length=MAX_SLICES,
            default_factory=list[str],
            description="metadata keys to slice the report by: its metrics once more for each of the 20 most frequent "
            "values; decides no score",
            examples=[["language"]],
        ),
    ]
    max_errors: Annotated[
        int | None, Field(ge=0, le=2**31 - 1, description="the run stops in error when more results are errors")
    ] = None


class UpdateRun(RequestModel):
    """Labels to set on a run; null takes one off, those left out stay (RFC 7396)."""

    labels: Annotated[
        dict[LabelKey, LabelValue | None],
        Field(min_length=1, max_length=2 * MAX_LABELS, examples=[{"evalsi.keep": "true", "draft": None}]),
    ]


class RunQuery(PageQuery):
    """Which runs to list."""

    state: Annotated[
        str | None,
        Field(pattern="^(pending|running|succeeded|failed|error|cancelled)$", description="only runs in this state"),
    ] = None
    label: Annotated[
        str | None, Field(max_length=301, pattern="^[^=]+=", description="only runs with this label, as key=value")
    ] = None
    source: Annotated[str | None, Field(max_length=63, description="only runs of this source")] = None
    created_after: Annotated[Instant | None, Field(description="only runs created after this instant")] = None


class WaitQuery(QueryModel):
    """How long to wait for a run to end."""

    wait_seconds: Annotated[
        int, Field(ge=0, le=20, description="answer when the run has ended, at the latest after this long")
    ] = 0


class ReportQuery(QueryModel):
    """In which form to answer, and beside which run."""

    format: Annotated[
        Literal["json", "html", "markdown", "junit"] | None,
        Field(description="instead of the Accept header, for a link or a browser"),
    ] = None
    baseline: Annotated[
        UUID | Literal["previous"] | None,
        Field(
            description="adds what moved since this run; `previous`: since the newest earlier run of the same name "
            "that has a report, if there is one"
        ),
    ] = None
    excerpts: Annotated[
        bool,
        Field(
            description="adds what the worst records were asked, answered and expected to answer, a beginning of each; "
            "needs `datasets.read` as well"
        ),
    ] = False


class ResultQuery(PageQuery):
    """Which results to list."""

    evaluator: Annotated[str | None, Field(max_length=100, description="only of this evaluator id")] = None
    status: Annotated[str | None, Field(pattern="^(scored|skipped|error)$", description="only with this status")] = None


class Result(ResponseModel):
    """What one evaluator said of one record in one trial."""

    record: Annotated[str, Field(description="the record's id")]
    trial: int
    evaluator: Annotated[str, Field(description="the evaluator's id in the run")]
    status: Annotated[str, Field(description="scored, skipped or error")]
    score: float | None
    passed: bool | None
    error: Annotated[str | None, Field(description="why it was skipped or failed")]


class Output(ResponseModel):
    """What the target of a run answered for one record in one trial."""

    record: Annotated[str, Field(description="the record's id")]
    trial: int
    output: Annotated[Any, Field(description="as the target gave it; null when it gave none")]
    error: Annotated[str | None, Field(description="why there is no output")]
    latency_ms: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    attempts: Annotated[int, Field(description="calls that were made for it")]
    created_at: Instant


class Distribution(ResponseModel):
    """How the scores of a metric are spread: bins of the same width from low to high."""

    low: float
    high: float
    counts: Annotated[list[int], Field(description="scores in each bin")]


class Metric(ResponseModel):
    """What the results of one evaluator add up to. A number that is not known is null, never left out."""

    id: str
    evaluator: str
    kind: Annotated[str, Field(description="pass_fail (Wilson interval) or number (Student t interval)")]
    n: Annotated[int, Field(description="scores that count")]
    mean: float | None
    std: Annotated[float | None, Field(description="sample standard deviation")]
    ci_low: Annotated[float | None, Field(description="lower end of the 95 % confidence interval")]
    ci_high: float | None
    scored: int
    skipped: int
    errors: int
    coverage: Annotated[float | None, Field(description="scored share of all results")]
    passed: Annotated[
        int | None, Field(description="scored results that passed; null when nothing of this metric passes or fails")
    ]
    failed: int | None
    minimum: Annotated[float | None, Field(description="bound that no score of this evaluator can leave")]
    maximum: float | None
    unit: Annotated[str | None, Field(description="of its scores: ms, USD, tokens, or null for a bare number")] = None
    distribution: Annotated[Distribution | None, Field(description="null without scores, and for pass_fail")]


class GateOutcome(ResponseModel):
    """What became of a gate."""

    metric: str
    stat: str
    min: float | None
    max: float | None
    value: float | None
    passed: bool
    reason: Annotated[str | None, Field(description="why it failed")]


class Latency(ResponseModel):
    """How long a run's target took for its outputs, in milliseconds."""

    n: Annotated[int, Field(description="outputs that were measured")]
    mean: float
    p50: Annotated[float, Field(description="median")]
    p95: float
    max: float


class Usage(ResponseModel):
    """What the outputs used, summed over the records that say so."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_ms: Annotated[Latency | None, Field(description="null when the records carried their outputs")] = None


def _is_none(value: object) -> bool:
    return value is None


class Excerpt(ResponseModel):
    """The beginning of a text, for people."""

    text: Annotated[
        str,
        Field(
            description="at most 300 characters and 8 lines, without blank ones; what would command a terminal or turn "
            "the direction of writing is U+FFFD"
        ),
    ]
    is_cut: Annotated[bool, Field(description="whether there is more than this")]


class Excerpts(ResponseModel):
    """What a record was asked, answered and expected to answer; of a conversation the last message, of values JSON."""

    input: Annotated[Excerpt | None, Field(description="null when the record has none")]
    output: Annotated[Excerpt | None, Field(description="what was scored; null when there is none")]
    reference: Annotated[Excerpt | None, Field(description="several, any of which would do, one a line")]
    record_path: Annotated[
        str | None,
        Field(description="GET it for the whole record; null when no dataset lists it, as in the run of a source"),
    ]
    output_path: Annotated[
        str | None, Field(description="GET it for the whole output; null when the record itself carries it")
    ]


class MissingExcerpts(ResponseModel):
    """Why worst records come without excerpts though they were asked for."""

    results: Annotated[int, Field(description="entries of `worst` without excerpts")]
    code: Annotated[
        str,
        Field(
            description="not_permitted (the key has no datasets.read), records_gone (the snapshot is no longer in the "
            "bucket), storage_unavailable (try again), too_large (the records lie in more than 32 MiB), place_unknown "
            "(the report is from before places were noted)"
        ),
    ]
    detail: Annotated[str, Field(description="the same in a sentence")]


class WorstResult(ResponseModel):
    """A result to look at first: an error, a failure, or one of the worst scores."""

    evaluator: str
    record: str
    record_no: Annotated[int | None, Field(description="records before it in what the run evaluated")] = None
    trial: int
    status: str
    score: float | None
    passed: bool | None
    error: str | None
    # Left out unless asked for: the stored report names records and quotes none.
    excerpts: Annotated[Excerpts | None, Field(description="if asked for and found", exclude_if=_is_none)] = None


class Slice(ResponseModel):
    """The part of the records that have one value of a metadata key."""

    key: str
    value: Any
    records: int
    metrics: list[Metric]


class ComparedRun(ResponseModel):
    """One side of a comparison."""

    id: UUID
    name: str
    state: str
    dataset: Annotated[RunDataset | None, Field(description="null for the run of a source")]
    config_sha256: str
    finished_at: Instant


class ChangedRecord(ResponseModel):
    """A record whose result changed, with both scores."""

    record: str
    trial: int
    baseline: float
    candidate: float


class ComparedMetric(ResponseModel):
    """What changed in one metric, over the records that both runs scored."""

    id: str
    evaluator: str
    kind: str
    better: Annotated[str | None, Field(description="which scores are better: higher, lower, or null for neither")]
    unit: Annotated[str | None, Field(description="of the scores, as in a report")] = None
    same_params: bool
    n: Annotated[int, Field(description="pairs: records that have a score in both runs")]
    baseline_mean: Annotated[float | None, Field(description="over the pairs")]
    candidate_mean: float | None
    difference: Annotated[float | None, Field(description="mean of candidate minus baseline")]
    ci_low: Annotated[
        float | None,
        Field(description="95 % confidence interval of the difference: Newcombe's for pass_fail, else Student's t"),
    ]
    ci_high: float | None
    regressions_count: Annotated[
        int, Field(description="pairs that passed and fail now; where nothing passes or fails, whose score is worse")
    ]
    fixes_count: Annotated[int, Field(description="the other way round")]
    regressions: Annotated[list[ChangedRecord], Field(description="the largest changes, at most 100")]
    fixes: list[ChangedRecord]
    baseline_only: Annotated[int, Field(description="scores without a counterpart: skipped, in error or not there")]
    candidate_only: int


class NotCompared(ResponseModel):
    """A metric that is left out, and why."""

    id: str
    reason: str


class Comparison(ResponseModel):
    """What changed from one run to another."""

    baseline: ComparedRun
    candidate: ComparedRun
    same_dataset: bool
    same_config: bool
    metrics: list[ComparedMetric]
    not_compared: list[NotCompared]


class Report(ResponseModel):
    """The report of a finished run."""

    run: str
    project: str
    name: str | None
    passed: bool
    metrics: list[Metric]
    gates: list[GateOutcome]
    records: int
    usage: Usage
    redactions: Annotated[dict[str, int], Field(description="replacements by kind, in the run of a source")]
    slices: list[Slice]
    worst: Annotated[list[WorstResult], Field(description="at most ten a metric")]
    dataset: Annotated[str | None, Field(description="name@version; for the run of a source its window")]
    dataset_sha256: str
    config_sha256: str
    evaluator_versions: dict[str, int]
    excluded_traces: Annotated[
        list[str], Field(default_factory=list, description="traces of the window that were passed over by request")
    ]
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    # Left out when there is none: sinks keep the report as it was when the run ended, and this is the same one.
    comparison: Annotated[
        Comparison | None,
        Field(description="what moved since the baseline, if one was asked for and found", exclude_if=_is_none),
    ] = None
    excerpts_missing: Annotated[
        MissingExcerpts | None,
        Field(description="when excerpts were asked for and not all were found", exclude_if=_is_none),
    ] = None


class CompareQuery(QueryModel):
    """Which runs to compare."""

    baseline: Annotated[UUID, Field(description="id of the run to compare with")]
    candidate: Annotated[UUID, Field(description="id of the run that is compared")]
