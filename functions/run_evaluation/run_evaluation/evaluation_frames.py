"""NDJSON frames of `/evaluate`: one settings frame, then one record a frame."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import orjson
from coordination.errors import Fault, InvalidRequestError
from coordination.evaluator_requests import EvaluatorRequest, check_evaluators
from coordination.http.validation import parse_json_object, read_faults
from coordination.models import RequestModel
from coordination.runs import EvaluatorConfig
from pydantic import Field, ValidationError
from records.evaluators import catalogue
from records.record import Record
from records.record_ids import RecordIds
from records.row_assembly import RowAssembly, RowRefusedError

MAX_RECORD_FRAMES = 1000


class HttpTarget(RequestModel):
    """A place that makes the outputs: each record's input is POSTed to it."""

    kind: Literal["http"]
    url: Annotated[str, Field(max_length=2000, description="https; the answer is JSON with a member `output`")]
    timeout_seconds: Annotated[float, Field(gt=0, le=20, description="for one call")] = 10.0


class RecordedTarget(RequestModel):
    """The outputs that the records carry."""

    kind: Literal["recorded"] = "recorded"


class EvaluationSettings(RequestModel):
    """The first frame."""

    evaluators: Annotated[list[EvaluatorRequest], Field(min_length=1, max_length=50)]
    target: Annotated[HttpTarget | RecordedTarget, Field(discriminator="kind")] = RecordedTarget()


class FrameReader:
    """Reads the frames of one request, one by one.

    Parameters
    ----------
    content
        The request's body.

    Raises
    ------
    InvalidRequestError
        The settings frame is missing or not right.
    """

    def __init__(self, content: bytes) -> None:
        self._lines = [line for line in content.split(b"\n") if line.strip()]
        if not self._lines:
            raise InvalidRequestError("The body is empty; send a settings frame, then one record a line.")
        self.settings, self.evaluators = _read_settings(self._lines[0])

    def read_records(self) -> Iterator[Record]:
        """Yield the records in their order.

        Raises
        ------
        InvalidRequestError
            A frame is no record; its pointer begins with the frame's number, the settings frame being 0.
        """
        assembly, ids = RowAssembly(), RecordIds()
        for number, line in enumerate(self._lines[1:], 1):
            if number > MAX_RECORD_FRAMES:
                raise InvalidRequestError.at(
                    [Fault(f"/{number}", f"at most {MAX_RECORD_FRAMES} records are taken; create a run for more")]
                )
            yield _read_record(number, line, assembly, ids)


def _read_settings(line: bytes) -> tuple[EvaluationSettings, list[EvaluatorConfig]]:
    frame = _parse(0, line)
    try:
        settings = EvaluationSettings.model_validate_json(orjson.dumps(frame))
    except ValidationError as error:
        faults = [Fault(f"/0{fault.pointer}", fault.message) for fault in read_faults(error, frame)]
        raise InvalidRequestError.at(faults) from error
    evaluators, faults = check_evaluators(settings.evaluators, "/0/evaluators")
    faults += [
        Fault(f"/0/evaluators/{position}/name", f"{evaluator.name} calls out; create a run for it")
        for position, evaluator in enumerate(evaluators)
        if not faults and catalogue.get_evaluator(evaluator.name).calls_out
    ]
    if faults:
        raise InvalidRequestError.at(faults)
    return settings, evaluators


def _read_record(number: int, line: bytes, assembly: RowAssembly, ids: RecordIds) -> Record:
    row = _parse(number, line)
    try:
        ready = assembly.assemble(number, row)
    except RowRefusedError as error:
        raise InvalidRequestError.at(
            [Fault(f"/{number}{problem.field or ''}", problem.message) for problem in error.problems]
        ) from error
    record_id = ready.record_id or ids.derive(ready.text, number)
    if ready.record_id is not None:
        twice = ids.claim(ready.record_id, number, "/id")
        if twice is not None:
            raise InvalidRequestError.at([Fault(f"/{number}/id", twice.message)])
    fields: dict[str, Any] = orjson.loads(ready.text)
    return msgspec.convert(fields | {"id": record_id}, Record)


def _parse(number: int, line: bytes) -> dict[str, Any]:
    try:
        return parse_json_object(line.decode("utf-8"))
    except (InvalidRequestError, UnicodeDecodeError) as error:
        detail = error.detail if isinstance(error, InvalidRequestError) else "not UTF-8"
        raise InvalidRequestError.at([Fault(f"/{number}", detail)]) from error
