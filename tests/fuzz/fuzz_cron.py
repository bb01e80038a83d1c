"""Coverage-guided fuzzing of the cron grammar and of the ticks that its sets make.

    make fuzz FUZZ_SECONDS=600

Whatever the text is, it is refused in words or means sets that say the same when they are written out and read again,
and whose ticks come in order; any other exception is a finding.
"""

import sys
from datetime import UTC, datetime
from typing import Any

import atheris as untyped_atheris

# Its functions come out of a compiled module, unseen by type checkers.
atheris: Any = untyped_atheris

with atheris.instrument_imports(include=["coordination.cron"]):
    from coordination.cron import CronError, Ticks, parse_cron
    from coordination.cron.grammar import MAX_CHARACTERS

START = datetime(2024, 2, 28, 23, 59, tzinfo=UTC)


def fuzz_one(data: bytes) -> None:
    """Parse one text."""
    try:
        sets = parse_cron(data.decode("utf-8", "surrogateescape"))
    except CronError as refusal:
        if not str(refusal):
            raise AssertionError("refused without words") from refusal
        return
    written = sets.to_expression()
    # Written out in full, sets may be longer than what people may write.
    assert len(written) > MAX_CHARACTERS or parse_cron(written) == sets
    ticks = Ticks(sets)
    first = ticks.next_after(START)
    assert first is not None, "an expression that never fires was taken"
    assert first > START
    assert ticks.last_until(first) == first
    assert ticks.count(START, first) == 1


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()
