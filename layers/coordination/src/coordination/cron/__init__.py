"""Cron expressions of sources: five fields, UTC, a grammar of our own."""

from coordination.cron.grammar import GRAMMAR_VERSION, CronError, CronSets, parse_cron
from coordination.cron.ticks import Ticks

__all__ = ["GRAMMAR_VERSION", "CronError", "CronSets", "Ticks", "parse_cron"]
