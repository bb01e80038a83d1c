"""How an output is read as JSON."""

import re
from typing import Any

from pydantic import Field

from records.evaluators.contract import EvaluatorParams

_FENCE = re.compile(r"\s*```[A-Za-z0-9_-]*[ \t]*\r?\n(?P<inside>.*?)\r?\n[ \t]*```\s*", re.DOTALL)


class NotJsonError(Exception):
    """An output is not JSON text."""


class JsonOutputParams(EvaluatorParams):
    """Parameters of evaluators that read the output as JSON."""

    allow_fence: bool = Field(
        default=False, description="Whether the JSON text may stand inside one Markdown code fence (```json … ```)."
    )

    def read_json(self, output: Any) -> Any:
        """Return the output as a JSON value: a text is parsed (RFC 8259), anything else is one already.

        Raises
        ------
        NotJsonError
            The text is not JSON; also for NaN and Infinity, half a surrogate pair in an escape, and nesting deeper than
            1,024 levels.
        """
        if not isinstance(output, str):
            return output
        import orjson

        text = output
        if self.allow_fence:
            fenced = _FENCE.fullmatch(output)
            if fenced is not None:
                text = fenced.group("inside")
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            raise NotJsonError from None
