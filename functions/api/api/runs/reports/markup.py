"""HTML that is escaped by construction: text becomes markup only through `element`."""

import html
from collections.abc import Iterable

_VOID = frozenset({"meta", "link", "br", "hr", "img"})


class Html(str):
    """Text that is markup already. Only this module and constants of the code make one."""

    __slots__ = ()


type Child = str | Html | Iterable[str | Html] | None


def element(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Make an element.

    Parameters
    ----------
    tag
        Its name.
    children
        `Html` stands as it is, any other text is escaped, None is nothing.
    attributes
        Escaped. `class_` is class, `data_label` is data-label; True is an attribute without a value, None and False are
        none.
    """
    written = [tag]
    for attribute, value in attributes.items():
        if value is None or value is False:
            continue
        label = attribute.rstrip("_").replace("_", "-")
        written.append(label if value is True else f'{label}="{html.escape(_write(value))}"')
    opening = f"<{' '.join(written)}>"
    if tag in _VOID:
        return Html(opening)
    return Html(f"{opening}{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Put children one after the other."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(html.escape(child))
        else:
            parts.append(join(child))
    return Html("".join(parts))


def _write(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
