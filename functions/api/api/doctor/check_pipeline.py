"""doctor.pipeline.*: is work that is due being done."""

from coordination.environment import Environment
from coordination.ports.dead_letters import DeadLetters
from coordination.queries import load_queries
from psycopg.rows import DictRow

from api.doctor.measure_scopes import Measures
from api.doctor.models import Check, judge

SOURCES_CHECK = "doctor.pipeline.sources.cursor-lag"
IDEMPOTENCY_CHECK = "doctor.pipeline.idempotency.capacity"
DISPATCH_CHECK = "doctor.pipeline.dispatch.stuck"
DEAD_LETTERS_CHECK = "doctor.pipeline.queues.dead-letters"

_QUERIES = load_queries("jobengine")
# The pulses come every minute: what is due for longer was passed over by several.
_LATE_SECONDS = 10 * 60
_FULL_PERCENT = 80


def check_sources(environment: Environment, measures: Measures) -> Check:
    """Judge how far the cursors of sources lag, and which windows were missed in the last day."""
    late = _measure_late(environment, "measure_late_ticks")
    reasons: list[str] = []
    if late["late_count"]:
        reasons.append("ticks of sources are due and not decided")
    if measures.missed_window_count:
        reasons.append("sources missed windows in the last day")
    return judge(
        SOURCES_CHECK,
        reasons,
        "Sources decide their ticks when they are due.",
        {
            "source_count": measures.source_count,
            "sources_behind": measures.behind_source_count,
            "late_tick_count": late["late_count"],
            "oldest_late_seconds": late["oldest_seconds"],
            "late_after_seconds": _LATE_SECONDS,
            "sources_with_missed_windows": measures.late_source_count,
            "missed_windows": measures.missed_window_count,
            "missed_ticks_by_reason": dict(measures.missed_reasons.most_common(10)),
        },
        "GET …/sources/{source}/windows says why each window was missed. See docs/runbook.md.",
    )


def check_idempotency(environment: Environment, measures: Measures) -> Check:
    """Judge how full the fullest idempotency scope is."""
    settings = environment.settings.idempotency
    records = 100 * measures.fullest_records // settings.max_records
    stored = 100 * measures.fullest_bytes // settings.max_bytes
    reasons: list[str] = []
    if records >= _FULL_PERCENT:
        reasons.append(f"a scope holds {records} % of the records it may hold")
    if stored >= _FULL_PERCENT:
        reasons.append(f"a scope holds {stored} % of the bytes it may hold")
    return judge(
        IDEMPOTENCY_CHECK,
        reasons,
        "No idempotency scope is near its caps.",
        {
            "scope_count": measures.idempotency_scope_count,
            "fullest_scope_records_percent": records,
            "fullest_scope_bytes_percent": stored,
            "unhealthy_from_percent": _FULL_PERCENT,
        },
        "Resolve uncertain claims (GET …/idempotency-claims), give busy clients keys of their own, or raise the caps.",
    )


def check_dispatch(environment: Environment, measures: Measures) -> Check:
    """Judge whether queued runs are taken up, and whether the outbox is emptied."""
    late = _measure_late(environment, "measure_late_wake_ups")
    reasons: list[str] = []
    if measures.stuck_dispatches:
        reasons.append("runs wait for their dispatch for more than 15 minutes")
    if late["late_count"]:
        reasons.append("work is due and no message was sent for it")
    return judge(
        DISPATCH_CHECK,
        reasons,
        "Queued work is taken up.",
        {
            "stuck_dispatches": measures.stuck_dispatches,
            "unsent_wake_ups": late["late_count"],
            "oldest_unsent_seconds": late["oldest_seconds"],
            "late_after_seconds": _LATE_SECONDS,
        },
        "Look at the schedule PulseSchedule, the function delivery and the queues' consumers. See docs/runbook.md.",
    )


def check_dead_letters(environment: Environment) -> Check:
    """Judge whether messages lie in dead-letter queues. Asks SQS, not the database."""
    dead_letters = DeadLetters()
    counts = {url.rpartition("/")[2]: dead_letters.count(url) for url in environment.settings.queues.dead_letter_urls}
    reasons = [f"{count} messages in {name}" for name, count in counts.items() if count]
    return judge(
        DEAD_LETTERS_CHECK,
        reasons,
        "No dead-letter queue holds a message." if counts else "No dead-letter queue is configured.",
        {"queues": counts},
        "The rows tell what became of the work: resume or requeue it there, then purge the queue. See docs/runbook.md.",
    )


def _measure_late(environment: Environment, query: str) -> DictRow:
    row = environment.database.fetch_one(_QUERIES[query], {"late_seconds": _LATE_SECONDS})
    assert row is not None  # noqa: S101 - an aggregate is one row
    return row
