"""Targets: what makes the output of a record."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
from coordination.environment import Environment
from coordination.ports.functions import Functions
from coordination.ports.http_calls import (
    AnswerTooLargeError,
    Destination,
    HttpCalls,
    OutgoingFailedError,
    OutgoingRefusedError,
)
from coordination.ports.language_models import LanguageModels
from coordination.ports.remote_calls import CallFailedError
from coordination.remote_places import find_target_faults
from coordination.secret_headers import SecretUnusableError, read_secret_headers
from coordination.targets import BedrockTarget, HttpTarget, LambdaTarget, RecordedTarget
from records.evaluators.json_values import find_flaw
from records.evaluators.texts import read_text
from records.record import Record

MAX_ANSWER_BYTES = 1024 * 1024
"""Of one answer of a target."""

_MAY_PASS = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_TOKENS = 2**53


class PlaceUnusableError(Exception):
    """A target or a judge cannot be used as the run names it: nobody is called. The message is for people."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a target is asked.

    Attributes
    ----------
    record
        Its input, context and metadata are sent; its reference never is.
    trial
        1, 2 …; None where there are no trials.
    call_key
        The same whenever the same is asked again, so that the other side can tell; None for none.
    """

    record: Record
    trial: int | None = None
    call_key: str | None = None

    def encode(self) -> bytes:
        """Return the question as JSON."""
        question: dict[str, Any] = {"record": self.record.id, "input": self.record.input}
        more = {"trial": self.trial, "context": self.record.context, "metadata": self.record.metadata}
        return orjson.dumps(question | {name: value for name, value in more.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Produced:
    """What a target answered.

    Attributes
    ----------
    output
        Any JSON value that can be kept.
    usage
        Those of input_tokens, output_tokens, cost_usd (US dollars) and latency_ms that it told of.
    """

    output: Any
    usage: Mapping[str, int | float]


type Target = Callable[[Question, float], Produced]
"""Makes an output within a number of seconds; raises CallFailedError."""


def open_target(
    environment: Environment, project: str, target: RecordedTarget | HttpTarget | LambdaTarget | BedrockTarget
) -> Target | None:
    """Make what a run's target is called with; None when the records carry their outputs.

    Raises
    ------
    PlaceUnusableError
        The project may not call it, or its secret holds no headers.
    OutgoingFailedError
        The name of its host does not resolve.
    """
    faults = find_target_faults(environment.settings.outgoing, target, project, "")
    if faults:
        raise PlaceUnusableError(f"{faults[0].pointer.removeprefix('/')} {faults[0].message}")
    match target:
        case HttpTarget():
            headers = read_headers(environment, project, target.secret)
            try:
                return http_target(environment.http_calls, project, target.url, target.timeout_seconds, headers)
            except OutgoingRefusedError as error:
                raise PlaceUnusableError(str(error)) from error
        case LambdaTarget():
            environment.functions.prepare(target.timeout_seconds)
            return lambda_target(environment.functions, target)
        case BedrockTarget():
            environment.models.prepare(target.timeout_seconds)
            return bedrock_target(environment.models, target)
        case RecordedTarget():
            return None


def read_headers(environment: Environment, project: str, secret: str | None) -> dict[str, str]:
    """Return the request headers that a secret of a project holds.

    Raises
    ------
    PlaceUnusableError
        See `coordination.secret_headers.read_secret_headers`.
    """
    try:
        return read_secret_headers(environment.secrets, project, secret)
    except SecretUnusableError as error:
        raise PlaceUnusableError(str(error)) from error


def http_target(
    calls: HttpCalls, project: str, url: str, timeout_seconds: float, headers: Mapping[str, str] | None = None
) -> Target:
    """Make a target that POSTs each record's input to an endpoint.

    The request is `{"record", "input", "trial"?, "context"?, "metadata"?}`; the answer a JSON object with `output` and,
    if it likes, `usage`. The address is resolved and checked here, once; every call goes to the address that was
    checked.

    Raises
    ------
    OutgoingRefusedError, OutgoingFailedError
        The address may not be called, or its name does not resolve.
    """
    destination = calls.resolve(project, url)
    own = headers or {}

    def produce(question: Question, most_seconds: float) -> Produced:
        call_key = {"idempotency-key": question.call_key} if question.call_key else {}
        seconds = min(timeout_seconds, most_seconds)
        return read_answer(post_json(calls, destination, question.encode(), {**own, **call_key}, "the target", seconds))

    return produce


def post_json(
    calls: HttpCalls,
    destination: Destination,
    body: bytes,
    headers: Mapping[str, str],
    who: str,
    timeout_seconds: float,
) -> bytes:
    """POST a question as JSON and return the body of the answer, at most `MAX_ANSWER_BYTES`; `who` is asked.

    Raises
    ------
    CallFailedError
        There was no usable answer, or one with another status than 200.
    """
    always = {"content-type": "application/json", "accept": "application/json"}
    try:
        answer = calls.send(
            "POST",
            destination,
            body,
            {**headers, **always},
            timeout_seconds=timeout_seconds,
            max_bytes=MAX_ANSWER_BYTES,
        )
    except OutgoingFailedError as error:
        raise CallFailedError(str(error), may_pass=not isinstance(error, AnswerTooLargeError)) from error
    if answer.status == 200:
        return answer.body
    message = f"{who} answered {answer.status}, 200 was expected"
    if 300 <= answer.status < 400:
        message += "; redirects are not followed"
    raise CallFailedError(message, may_pass=answer.status in _MAY_PASS, wait_seconds=answer.retry_after_seconds())


def lambda_target(functions: Functions, target: LambdaTarget) -> Target:
    """Make a target that invokes a function with the same question, and takes the same answer, as an endpoint."""

    def produce(question: Question, _most_seconds: float) -> Produced:
        answer = functions.invoke(
            target.function,
            question.encode(),
            timeout_seconds=target.timeout_seconds,
            max_bytes=MAX_ANSWER_BYTES,
        )
        return read_answer(answer)

    return produce


def bedrock_target(models: LanguageModels, target: BedrockTarget) -> Target:
    """Make a target that asks a model: the input is a text, or a list of messages with role and content."""

    def produce(question: Question, _most_seconds: float) -> Produced:
        system, messages = to_messages(question.record.input)
        system = [*([target.system] if target.system else []), *system]
        inference: dict[str, Any] = {"maxTokens": target.max_tokens}
        if target.temperature is not None:
            inference["temperature"] = target.temperature
        request: dict[str, Any] = {"messages": messages, "inferenceConfig": inference}
        if system:
            request["system"] = [{"text": text} for text in system]
        answer = models.converse(target.model, request, timeout_seconds=target.timeout_seconds)
        if not answer.text:
            raise CallFailedError("the model answered without a text")
        usage: dict[str, int | float] = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
        cost = target.price(answer.input_tokens, answer.output_tokens)
        return _produce(answer.text, usage if cost is None else usage | {"cost_usd": cost})

    return produce


def to_messages(value: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """Turn an input into system prompts and messages of Converse.

    A list of `{"role", "content"}` is a conversation, its content a text or a list of `{"text"}`; anything else is one
    message of the user, its text or its JSON.
    """
    system: list[str] = []
    messages: list[dict[str, Any]] = []
    for part in cast("list[Any]", value) if isinstance(value, list) else [None]:
        read = _read_message(part)
        if read is None:
            return [], [{"role": "user", "content": [{"text": read_text(value)}]}]
        role, text = read
        if role == "system":
            system.append(text)
        else:
            messages.append({"role": "assistant" if role == "assistant" else "user", "content": [{"text": text}]})
    if not messages:
        return [], [{"role": "user", "content": [{"text": read_text(value)}]}]
    return system, messages


def _read_message(part: Any) -> tuple[str, str] | None:
    """Return role and text of a message; None when it is none."""
    message = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        return None
    if isinstance(content, str):
        return role, content
    pieces = cast("list[Any]", content) if isinstance(content, list) else []
    texts: list[Any] = [piece.get("text") if isinstance(piece, dict) else None for piece in pieces]
    return (role, "".join(texts)) if texts and all(isinstance(text, str) for text in texts) else None


def read_answer(body: bytes) -> Produced:
    """Read `{"output", "usage"?}`.

    Raises
    ------
    CallFailedError
        It is no such object, or its output cannot be kept.
    """
    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallFailedError("the target's answer is not JSON") from error
    if not isinstance(answer, dict) or "output" not in answer:
        raise CallFailedError("the target's answer has no member `output`")
    return _produce(answer["output"], _read_usage(cast("dict[str, Any]", answer).get("usage")))


def _produce(output: Any, usage: Mapping[str, int | float]) -> Produced:
    flaw = find_flaw(output)
    if flaw is not None:
        raise CallFailedError(f"the output cannot be kept: {flaw}")
    return Produced(output, usage)


def _read_usage(usage: Any) -> dict[str, int | float]:
    """Return what can be believed of a usage: numbers of at least 0, tokens whole."""
    if not isinstance(usage, dict):
        return {}
    told = cast("dict[str, Any]", usage)
    read: dict[str, int | float] = {}
    for name in ("input_tokens", "output_tokens"):
        count = told.get(name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MAX_TOKENS:
            read[name] = count
    for name in ("cost_usd", "latency_ms"):
        number = told.get(name)
        if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < _MAX_TOKENS:
            read[name] = float(number)
    return read
