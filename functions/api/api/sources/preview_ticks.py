"""When a source would tick; nothing is stored."""

from datetime import datetime, timedelta

from coordination.cron import Ticks
from coordination.sources import SourceWindow

from api.sources.models import Preview

_SHOWN = 5


def preview_ticks(ticks: Ticks, window: timedelta, after: datetime) -> Preview:
    """Return the next five ticks after an instant and the window of the first."""
    found: list[datetime] = []
    tick = ticks.next_after(after)
    while tick is not None and len(found) < _SHOWN:
        found.append(tick)
        tick = ticks.next_after(tick)
    try:
        next_window = SourceWindow(start=found[0] - window, end=found[0]) if found else None
    except OverflowError:
        next_window = None
    return Preview(next_ticks=found, next_window=next_window)
