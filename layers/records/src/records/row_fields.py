"""From a row as its sender wrote it to the fields of a record: names, aliases, mapping, metadata, types.

Rows of one file mostly have the same names, so what becomes of which name is decided once for each set of names (a
`RowPlan`) and applied to every row that has it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from records.field_types import ID_CHARACTERS_MAX, TYPE_CHECKS, name_kind
from records.json_pointer import MISSING, look_up, read_pointer, write_pointer
from records.row_errors import Reason

FIELDS = ("context", "id", "input", "metadata", "output", "reference", "trajectory", "usage")
"""The names of a canonical row, in their canonical order."""

ALIASES: dict[str, tuple[str, ...]] = {
    "input": ("question", "prompt", "query", "inputs", "messages"),
    "output": ("completion", "response", "answer_generated", "actual_output"),
    "reference": ("expected", "expected_output", "ideal", "ground_truth", "answer", "target", "label"),
    "context": ("contexts", "retrieved_contexts", "documents"),
}
"""Names that fill a field which a row lacks or has as null: the first listed wins, the others are metadata."""

_PLANS_MAX = 1024


class MappingInvalidError(ValueError):
    """A mapping names a field that no record has, or a place that is no JSON Pointer; the message says which."""


class RowProblem(NamedTuple):
    """One thing that is wrong with one row: what a `records.row_errors.RowError` says, without the row's number."""

    field: str | None
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What becomes of each name of a row.

    Parameters
    ----------
    fillable
        Names whose being null decides something: a plan holds for rows that have the same ones null.
    moves
        ``(name, field)``: members that become another field.
    copies
        ``(pointer tokens, field)``: values that are mapped from inside a member; the member itself stays.
    drops
        Null members that give way to an alias, a mapping or a derived id.
    extras
        Members that become metadata.
    aliases
        Notes of the aliases used: ``question -> input``.
    matched
        Fields that the mapping found.
    checked
        ``(field, pointer)`` of the fields of this row whose type matters.
    id_pointer
        Where the id is.
    input_pointer
        Where the input is, or should have been.
    is_complete
        There is an input or an output; undecided (``None``) when it depends on a copy.
    names_added
        Members that the canonical row has more than the source row, the id aside; ``None`` when that depends on the
        row.
    """

    fillable: tuple[str, ...]
    moves: tuple[tuple[str, str], ...]
    copies: tuple[tuple[tuple[str, ...], str], ...]
    drops: tuple[str, ...]
    extras: tuple[str, ...]
    aliases: tuple[str, ...]
    matched: tuple[str, ...]
    checked: tuple[tuple[str, str], ...]
    id_pointer: str
    input_pointer: str
    is_complete: bool | None
    names_added: int | None

    def is_straight(self, names: Iterable[str]) -> bool:
        """Tell whether rows with these names, none of them null, need nothing but renaming and gathering metadata.

        They have an id, and no field whose parts have types of their own.
        """
        moved = {field for _, field in self.moves}
        own = set(names).difference(self.extras, (name for name, _ in self.moves))
        return (
            not self.copies
            and not self.drops
            and self.names_added is not None
            and self.is_complete is True
            and "id" in moved | own
            and (moved | own).isdisjoint({"trajectory", "usage"})
            and moved.isdisjoint(own)
        )


class RowFields:
    """Arranges the rows of one file.

    Parameters
    ----------
    mapping
        ``{field: JSON Pointer or name}``: where to find a field instead of under its own name and aliases. A text that
        begins with ``/`` is a pointer.

    Raises
    ------
    MappingInvalidError
        A key is not in `FIELDS`, or a value is empty or no pointer.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self._places = {field: _read_place(field, place) for field, place in (mapping or {}).items()}
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...]], RowPlan] = {}
        self.unmatched: set[str] = set(self._places)
        """Mapped fields that no row has had so far."""

    def plan(self, row: Mapping[str, Any]) -> RowPlan:
        """Return what becomes of the names of `row`."""
        names = tuple(row)
        plan = self.plan_without_nulls(names)
        for name in plan.fillable:
            if row[name] is None:
                plan = self._plan_with_nulls(names, tuple(name for name in plan.fillable if row[name] is None))
                break
        if self.unmatched:
            self.unmatched.difference_update(plan.matched)
        return plan

    def plan_without_nulls(self, names: tuple[str, ...]) -> RowPlan:
        """Return what becomes of names none of which is null; does not touch `unmatched`."""
        plan = self._plans.get((names, ()))
        if plan is None:
            self._forget_plans_of_a_file_without_pattern()
            plan = self._plans[names, ()] = self._make_plan(names, ())
        return plan

    def _plan_with_nulls(self, names: tuple[str, ...], nulls: tuple[str, ...]) -> RowPlan:
        plan = self._plans.get((names, nulls))
        if plan is None:
            plan = self._plans[names, nulls] = self._make_plan(names, nulls)
        return plan

    def arrange(self, row: dict[str, Any], plan: RowPlan) -> list[RowProblem] | None:
        """Make `row` the fields of a record, in place; its id, and a context that is one text, are left as they are.

        Returns
        -------
        list of RowProblem or None
            ``None`` when all is well. Otherwise `row` is of no use any more.
        """
        problems: list[RowProblem] | None = None
        if plan.copies or plan.moves or plan.drops or plan.extras:
            problems = self._rearrange(row, plan)
        if not plan.is_complete and (
            plan.is_complete is False or (row.get("input") is None and row.get("output") is None)
        ):
            message = (
                "the row has neither an input nor an output: name one, use an alias (as prompt or response), or give a "
                "mapping"
            )
            problems = [*(problems or ()), RowProblem(plan.input_pointer, "missing_input", message)]
        for field, pointer in plan.checked:
            value = row.get(field)
            misfit = TYPE_CHECKS[field](value)
            if misfit is not None:
                place = pointer + write_pointer(misfit.path)
                problems = [*(problems or ()), RowProblem(place, "invalid_field", misfit.message)]
        return problems

    def _rearrange(self, row: dict[str, Any], plan: RowPlan) -> list[RowProblem] | None:
        problems: list[RowProblem] = []
        filled: dict[str, Any] = {}
        for tokens, field in plan.copies:
            value = look_up(row, tokens)
            if value is not MISSING:
                filled[field] = value
                if value is not None:
                    self.unmatched.discard(field)
        for name, field in plan.moves:
            filled[field] = row[name]
        for name, _ in plan.moves:
            row.pop(name, None)
        for name in plan.drops:
            del row[name]
        if plan.extras:
            self._gather_metadata(row, plan, filled, problems)
        row.update(filled)
        return problems or None

    def _gather_metadata(
        self, row: dict[str, Any], plan: RowPlan, filled: dict[str, Any], problems: list[RowProblem]
    ) -> None:
        extras = {name: row.pop(name) for name in plan.extras}
        given = filled.get("metadata") if "metadata" in filled else row.get("metadata")
        if given is None:
            filled["metadata"] = extras
            return
        if type(given) is not dict:
            filled["metadata"] = given
            return
        members = cast("dict[str, Any]", given)
        if not members.keys().isdisjoint(extras):
            for name in members.keys() & extras.keys():
                message = (
                    f"metadata already has a member {name!r}: rename this one or that, "
                    "since members without a meaning of their own become metadata"
                )
                problems.append(RowProblem(write_pointer([name]), "alias_clash", message))
        filled["metadata"] = members | extras

    def _make_plan(self, names: tuple[str, ...], nulls: tuple[str, ...]) -> RowPlan:
        present = [name for name in names if name not in nulls]
        moves: dict[str, str] = {}
        copies: list[tuple[tuple[str, ...], str]] = []
        aliases: list[str] = []
        matched: list[str] = []
        pointers = {field: write_pointer([field]) for field in FIELDS}
        for field, tokens in self._places.items():
            pointers[field] = write_pointer(tokens)
            if len(tokens) > 1:
                copies.append((tokens, field))
                continue
            name = "".join(tokens)
            if name in names:
                moves[field] = name
                if name in present:
                    matched.append(field)
        taken = set(moves.values())
        own = {field for field in FIELDS if field not in self._places and field in names and field not in taken}
        for field, candidates in ALIASES.items():
            if field in self._places or (field in own and field in present):
                continue
            for alias in candidates:
                if alias in present and alias not in taken:
                    moves[field] = alias
                    taken.add(alias)
                    pointers[field] = write_pointer([alias])
                    aliases.append(f"{alias} -> {field}")
                    break
        drops = {field for field in own if field not in present and (field in moves or field == "id")}
        extras = tuple(name for name in names if name not in own and name not in taken)
        if extras and "metadata" in own and "metadata" not in present:
            drops.add("metadata")
        filled = {field for field in own if field in present} | {
            field for field, name in moves.items() if name in present
        }
        is_complete: bool | None = bool({"input", "output"} & filled)
        if not is_complete and {"input", "output"} & {field for _, field in copies}:
            is_complete = None
        copied = {field for _, field in copies}
        checked = tuple((field, pointers[field]) for field in TYPE_CHECKS if field in filled or field in copied)
        has_metadata = "metadata" in filled
        is_one_to_one = not copies and len(set(moves.values())) == len(moves)
        return RowPlan(
            fillable=tuple(name for name in names if name in _FILLABLE or name in taken),
            moves=tuple((name, field) for field, name in moves.items()),
            copies=tuple(copies),
            drops=tuple(name for name in names if name in drops and name in own),
            extras=extras,
            aliases=tuple(aliases),
            matched=tuple(matched),
            checked=checked,
            id_pointer=pointers["id"],
            input_pointer=pointers["input"],
            is_complete=is_complete,
            names_added=(bool(extras) and not has_metadata) - len(drops) if is_one_to_one else None,
        )

    def _forget_plans_of_a_file_without_pattern(self) -> None:
        if len(self._plans) > _PLANS_MAX:
            self._plans.clear()


def check_mapping(mapping: dict[str, str] | None) -> dict[str, str] | None:
    """Return a mapping as it is if it makes sense.

    Raises
    ------
    MappingInvalidError
        See `RowFields`.
    """
    for field, place in (mapping or {}).items():
        _read_place(field, place)
    return mapping


def read_id(value: Any, pointer: str) -> str | RowProblem | None:
    """Return the id that a row names: ``None`` when one has to be derived (absent, null or empty).

    Integers become their digits: 7 and "7" are the same id.
    """
    if value is None or value == "":
        return None
    if type(value) is int:
        return str(value)
    if type(value) is not str:
        message = f"an id is a text or an integer, not {name_kind(value)}: put it in quotes, or leave it out"
        return RowProblem(pointer, "invalid_id", message)
    if len(value) > ID_CHARACTERS_MAX:
        message = f"an id has at most {ID_CHARACTERS_MAX} characters; this one has {len(value)}"
        return RowProblem(pointer, "invalid_id", message)
    return value


def _read_place(field: str, place: str) -> tuple[str, ...]:
    if field not in FIELDS:
        message = f"mapping: {field!r} is not a field of a record; the fields are {', '.join(FIELDS)}"
        raise MappingInvalidError(message)
    if not place:
        message = f"mapping: {field!r} names no place"
        raise MappingInvalidError(message)
    if "\x00" in place:
        message = f"mapping: {field!r} names a place with a NUL character"
        raise MappingInvalidError(message)
    if not place.startswith("/"):
        return (place,)
    try:
        return read_pointer(place)
    except ValueError as error:
        message = f"mapping: {field!r}: {error}"
        raise MappingInvalidError(message) from None


_FILLABLE = frozenset({*FIELDS, *(alias for aliases in ALIASES.values() for alias in aliases)})
