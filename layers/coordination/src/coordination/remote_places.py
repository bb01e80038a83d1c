"""Which places outside a project may name: secrets of its own, functions and models that the deployment lists.

Checked when a run or a source is created and again when a place is used: the lists may have become shorter. Hosts have
a guard of their own (`coordination.ports.http_calls`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from records.evaluators import catalogue

from coordination.errors import Fault, InvalidRequestError
from coordination.ports.http_calls import HttpCalls, OutgoingFailedError, OutgoingRefusedError
from coordination.runs import EvaluatorConfig
from coordination.settings import OutgoingSettings, list_allowed
from coordination.sinks import AnySink, MlflowSink, S3Sink, find_prefix_fault
from coordination.targets import BedrockTarget, HttpTarget, LambdaTarget, RecordedTarget

_SECRET_NAME = re.compile(r"[A-Za-z0-9/_+=.@-]{1,300}")


def find_secret_fault(secret: str, project: str) -> str | None:
    """Say what is wrong with the id of a secret; None when a project may name it."""
    home = f"evalward/{project}/"
    name = secret.removeprefix(home)
    if not secret.startswith(home) or not _SECRET_NAME.fullmatch(name) or ".." in name:
        return f"must be the name of a secret below {home}"
    return None


def find_function_fault(settings: OutgoingSettings, function: str, project: str) -> str | None:
    """Say why a function may not be invoked for a project; None when it may."""
    if function in list_allowed(settings.allowed_functions, project):
        return None
    return "the deployment does not list this function for the project (OutgoingAllowedFunctions)"


def find_model_fault(settings: OutgoingSettings, model: str, project: str) -> str | None:
    """Say why a model may not be asked for a project; None when it may."""
    if model in list_allowed(settings.allowed_models, project):
        return None
    return "the deployment does not list this model for the project (OutgoingAllowedModels)"


def find_target_faults(
    settings: OutgoingSettings,
    target: RecordedTarget | HttpTarget | LambdaTarget | BedrockTarget,
    project: str,
    at: str,
) -> list[Fault]:
    """Find the places that a target names and may not; `at` is its JSON Pointer. The host is not looked at."""
    found: dict[str, str | None] = {}
    match target:
        case HttpTarget(secret=str(secret)):
            found["secret"] = find_secret_fault(secret, project)
        case LambdaTarget(function=function):
            found["function"] = find_function_fault(settings, function, project)
        case BedrockTarget(model=model):
            found["model"] = find_model_fault(settings, model, project)
        case _:
            pass
    return [Fault(f"{at}/{name}", message) for name, message in found.items() if message is not None]


def find_evaluator_faults(
    settings: OutgoingSettings, evaluators: Sequence[EvaluatorConfig], project: str, at: str
) -> list[Fault]:
    """Find the places that evaluators name and may not; `at` is the JSON Pointer of their list."""
    faults: list[Fault] = []
    for position, evaluator in enumerate(evaluators):
        if not catalogue.get_evaluator(evaluator.name).calls_out:
            continue
        params: Mapping[str, Any] = evaluator.params
        found: dict[str, str | None] = {}
        if params.get("function") is not None:
            found["function"] = find_function_fault(settings, params["function"], project)
        if params.get("provider") == "bedrock":
            found["model"] = find_model_fault(settings, params["model"], project)
        if params.get("secret") is not None:
            found["secret"] = find_secret_fault(params["secret"], project)
        faults += [
            Fault(f"{at}/{position}/params/{name}", message) for name, message in found.items() if message is not None
        ]
    return faults


def find_sink_faults(sinks: Sequence[AnySink], project: str, at: str) -> list[Fault]:
    """Find the places that sinks name and may not; `at` is the JSON Pointer of their list. Hosts are not looked at."""
    faults: list[Fault] = []
    for position, sink in enumerate(sinks):
        match sink:
            case S3Sink(prefix=prefix):
                name, message = "prefix", find_prefix_fault(prefix, project)
            case MlflowSink(secret=str(secret)):
                name, message = "secret", find_secret_fault(secret, project)
            case _:
                continue
        if message is not None:
            faults.append(Fault(f"{at}/{position}/{name}", message))
    return faults


def find_host_faults(calls: HttpCalls, project: str, urls: Mapping[str, str | None]) -> list[Fault]:
    """Find the servers that a project may not call, and names that do not resolve; looked at again at every call.

    Parameters
    ----------
    calls
        Resolves names; no transaction is open.
    project
        Whose.
    urls
        JSON Pointer -> address, or None where none is given.
    """
    faults: list[Fault] = []
    for pointer, url in urls.items():
        if url is None:
            continue
        try:
            calls.resolve(project, url)
        except (OutgoingRefusedError, OutgoingFailedError) as error:
            faults.append(Fault(pointer, str(error)))
    return faults


def check_hosts(calls: HttpCalls, project: str, urls: Mapping[str, str | None]) -> None:
    """Make sure that servers may be called; as `find_host_faults`.

    Raises
    ------
    InvalidRequestError
        One may not, or its name does not resolve.
    """
    faults = find_host_faults(calls, project, urls)
    if faults:
        raise InvalidRequestError.at(faults)


def check_sink_hosts(calls: HttpCalls, project: str, sinks: Sequence[AnySink], at: str) -> None:
    """Make sure that the servers of sinks may be called; `at` is the JSON Pointer of their list. As `check_hosts`."""
    endpoints = {
        f"{at}/{position}/endpoint": sink.endpoint
        for position, sink in enumerate(sinks)
        if isinstance(sink, MlflowSink)
    }
    check_hosts(calls, project, endpoints)
