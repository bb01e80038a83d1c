"""What the rows of a file have in common at every level, as types that a JSON reader can be told.

A shape is learned from rows, and holds for every row in which nothing is new: no other member, no other kind of value.
"""

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import orjson

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
_INTEGER: Any = Annotated[int, msgspec.Meta(ge=_INTEGER_MIN, le=_INTEGER_MAX)]
_SCALARS: dict[type, Any] = {str: str, bool: bool, type(None): None}
_EMPTY_LIST: Any = Annotated[list[Any], msgspec.Meta(max_length=0)]
# A file without pattern has rows with ever new members.
_MEMBERS_MAX = 128
_TYPES_MAX = 256


class ShapelessError(Exception):
    """Rows have nothing in common that could be told to a reader."""


class Shape:
    """The kinds of value that were seen at one place, and the shapes below it.

    Attributes
    ----------
    kinds
        Python types, float for every number with a fraction or exponent.
    items
        Shape of the items of lists.
    members
        Shapes of the members of objects.
    required
        Members that every object had.
    """

    def __init__(self) -> None:
        self.kinds: set[type] = set()
        self.items: Shape | None = None
        self.members: dict[str, Shape] = {}
        self.required: set[str] = set()

    def add(self, value: Any) -> None:
        """Learn a value: JSON, its numbers as they are written.

        Raises
        ------
        ShapelessError
            Objects have too many different members, or an integer is beyond those that a reader can be told.
        """
        kind: type = type(value)
        if kind is orjson.Fragment:
            kind = float
        elif kind is int:
            if not _INTEGER_MIN <= value <= _INTEGER_MAX:
                raise ShapelessError
        elif kind is list:
            self.items = self.items or Shape()
            for item in cast("list[Any]", value):
                self.items.add(item)
        elif kind is dict:
            self._add_members(cast("dict[str, Any]", value), is_first=dict not in self.kinds)
        self.kinds.add(kind)

    def _add_members(self, value: dict[str, Any], *, is_first: bool) -> None:
        self.required = set(value) if is_first else self.required & value.keys()
        for name, item in value.items():
            member = self.members.get(name)
            if member is None:
                if len(self.members) == _MEMBERS_MAX:
                    raise ShapelessError
                member = self.members[name] = Shape()
            member.add(item)


class NumberPlace(NamedTuple):
    """Where rows have numbers whose text needs a look."""

    path: tuple[str, ...]
    """Attributes from the row down to them."""
    is_always: bool
    """Every row has a number there, or a list of them."""
    in_lists: bool = False
    """They are the items of lists."""


class Member(NamedTuple):
    """A member of an object type."""

    name: str
    attribute: str
    type: Any
    is_required: bool = True


class TypeMaker:
    """Makes the types for one kind of rows, and notes where their numbers are."""

    def __init__(self) -> None:
        self.number_places: list[NumberPlace] = []
        self._types = 0

    def make(self, shape: Shape, path: tuple[str, ...] | None, *, is_required: bool = True) -> Any:
        """Return the type of the values that a shape was learned from.

        Parameters
        ----------
        shape
            Of the values.
        path
            Attributes from the row down to them; ``None`` when those do not lead there in every row.
        is_required
            Every row has a value there.

        Raises
        ------
        ShapelessError
            There is no such type, or numbers lie where no attribute leads.
        """
        self._types += 1
        if self._types > _TYPES_MAX:
            raise ShapelessError
        kinds = shape.kinds
        made: list[Any] = [told for kind, told in _SCALARS.items() if kind in kinds]
        if float in kinds:
            # No hook is called for a number whose type is told, so its text is looked at later.
            if path is None:
                raise ShapelessError
            self.number_places.append(NumberPlace(path, is_required and kinds <= {int, float}))
            made.append(int | float)
        elif int in kinds:
            made.append(_INTEGER)
        if shape.items is not None:
            made.append(self._make_list(shape.items, path, is_always=is_required and kinds == {list}))
        if dict in kinds:
            is_reachable = path is not None and is_required and kinds == {dict}
            made.append(self.make_object(shape, path if is_reachable else None))
        united = made[0]
        for kind in made[1:]:
            united |= kind
        return united

    def _make_list(self, items: Shape, path: tuple[str, ...] | None, *, is_always: bool) -> Any:
        if not items.kinds:
            return _EMPTY_LIST
        if path is not None and float in items.kinds and items.kinds <= {int, float}:
            self.number_places.append(NumberPlace(path, is_always, in_lists=True))
            return list[int | float]
        return list[self.make(items, None)]

    def make_object(self, shape: Shape, path: tuple[str, ...] | None, later: Iterable[Member] = ()) -> Any:
        """Return the type of objects, whose members are written in canonical order.

        Parameters
        ----------
        shape, path
            As for `make`.
        later
            Members that no object has as it is read, and that are set before it is written.

        Raises
        ------
        ShapelessError
            There is no such type, or an object has one of those members.
        """
        members = list(later)
        if any(member.name in shape.members for member in members):
            raise ShapelessError
        for position, (name, below) in enumerate(shape.members.items()):
            attribute, is_required = f"member_{position}", name in shape.required
            kind = self.make(below, None if path is None else (*path, attribute), is_required=is_required)
            members.append(Member(name, attribute, kind, is_required))
        return define_object(members)


def define_object(members: list[Member], never: Iterable[str] = ()) -> Any:
    """Return the type of objects with these members, which are written in canonical order.

    Parameters
    ----------
    members
        Nothing else may occur.
    never
        Attributes that are always unset: no member has them.

    Raises
    ------
    ShapelessError
        A name cannot be told to a reader.
    """
    fields: list[Any] = [
        (attribute, kind) if is_required else (attribute, kind | msgspec.UnsetType, msgspec.UNSET)
        for _, attribute, kind, is_required in sorted(members, key=lambda member: member.name.encode("utf-16-be"))
    ]
    names = {member.attribute: member.name for member in members}
    unset = dict.fromkeys(never, msgspec.UNSET)
    try:
        return msgspec.defstruct(
            "Object", fields, namespace=unset, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False
        )
    except ValueError:
        # JSON would escape the name.
        raise ShapelessError from None
