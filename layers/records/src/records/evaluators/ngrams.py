"""Sequences of n neighbours, for the evaluators that count them."""

from collections import Counter
from collections.abc import Sequence

from records.evaluators.contract import UnscorableError

MAX_CHARACTERS = 400_000
"""Characters of an output and all its references together; about two seconds."""


def require_countable(*texts: str) -> None:
    """Refuse texts that are together too long to count all their sequences.

    Raises
    ------
    UnscorableError
        They have more characters than `MAX_CHARACTERS`.
    """
    total = sum(map(len, texts))
    if total > MAX_CHARACTERS:
        message = f"{total:,} characters are too many to compare; at most {MAX_CHARACTERS:,} are taken"
        raise UnscorableError(message)


def count_ngrams[Items: (str, tuple[str, ...])](items: Items, n: int) -> Counter[Items]:
    """Count the sequences of n neighbours: of characters in a text, of words in a tuple."""
    return Counter(items[at : at + n] for at in range(len(items) - n + 1))


def count_shared[Item](made: Counter[Item], expected: Counter[Item]) -> int:
    """Count what both have, as many times as both have it."""
    return sum(min(count, expected[item]) for item, count in made.items() if item in expected)


def choose_nearest_length(length: int, references: Sequence[int]) -> int:
    """Return the reference length nearest to a length; of two as near, the shorter."""
    return min(references, key=lambda reference: (abs(reference - length), reference))
