"""The catalogue: which evaluators there are, whether parameters are right, and scorers made from them."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

import records.evaluators
from records.evaluators.contract import AnyEvaluator, Evaluator, Scorer
from records.evaluators.json_values import find_flaw_and_pointer
from records.evaluators.pointers import ParameterProblem, describe_problems


class UnknownEvaluatorError(LookupError):
    """There is no evaluator of that name.

    Parameters
    ----------
    name
        The name asked for.
    nearest
        At most three names that are alike, the most alike first.
    """

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        self.name: str = name
        self.nearest: tuple[str, ...] = nearest
        advice = f"did you mean {', '.join(nearest)}?" if nearest else "see the list of evaluators"
        super().__init__(f"there is no evaluator {name[:64]!r}; {advice}")


class InvalidParamsError(ValueError):
    """The parameters of an evaluator are not right.

    Parameters
    ----------
    name
        The evaluator.
    problems
        At least one, each with its place.
    """

    def __init__(self, name: str, problems: tuple[ParameterProblem, ...]) -> None:
        self.name: str = name
        self.problems: tuple[ParameterProblem, ...] = problems
        super().__init__("; ".join(f"{problem.pointer or '/'}: {problem.message}" for problem in problems))


@functools.cache
def _load_evaluators() -> Mapping[str, AnyEvaluator]:
    found: dict[str, AnyEvaluator] = {}
    for module_info in pkgutil.iter_modules(records.evaluators.__path__):
        module = importlib.import_module(f"{records.evaluators.__name__}.{module_info.name}")
        evaluator: object = getattr(module, "EVALUATOR", None)
        if isinstance(evaluator, Evaluator):
            found[evaluator.name] = evaluator
    return dict(sorted(found.items()))


def get_evaluator(name: str) -> AnyEvaluator:
    """Return the evaluator of that name.

    Raises
    ------
    UnknownEvaluatorError
        There is none.
    """
    evaluators = _load_evaluators()
    if name in evaluators:
        return evaluators[name]
    import difflib

    nearest = difflib.get_close_matches(name[:64].casefold().replace("-", "_"), evaluators, n=3, cutoff=0.5)
    raise UnknownEvaluatorError(name, tuple(nearest))


def list_evaluators() -> list[dict[str, Any]]:
    """Describe every evaluator, by name.

    Returns
    -------
    list of dict
        ``name``, ``version``, ``kind``, ``description``, ``score_meaning``, ``minimum`` and ``maximum`` of a score
        (``None`` where there is none), ``better`` (``higher``, ``lower`` or ``None``),
        ``params_schema`` (JSON Schema, draft 2020-12).
    """
    return [
        {
            "name": evaluator.name,
            "version": evaluator.version,
            "kind": evaluator.kind,
            "description": evaluator.description,
            "score_meaning": evaluator.score_meaning,
            "minimum": evaluator.minimum,
            "maximum": evaluator.maximum,
            "better": evaluator.better,
            "params_schema": evaluator.params.model_json_schema(by_alias=True),
        }
        for evaluator in _load_evaluators().values()
    ]


def validate(name: str, params: Mapping[str, Any] | None, *, at: str = "") -> dict[str, Any]:
    """Check the parameters of an evaluator.

    Parameters
    ----------
    name
        The evaluator.
    params
        Parameters as JSON values; ``None`` counts as none given.
    at
        JSON Pointer of the parameters in what was sent, put before every pointer: ``/evaluators/0/params``.

    Returns
    -------
    dict
        The parameters with every default, as JSON values; validating them again gives the same.

    Raises
    ------
    UnknownEvaluatorError
        There is no such evaluator.
    InvalidParamsError
        Every problem found, with its place.
    """
    return _parse(name, params, at).model_dump(mode="json", by_alias=True)


def build(name: str, params: Mapping[str, Any] | None = None) -> Scorer:
    """Make a scorer. Patterns and schemas are compiled here, once.

    Raises
    ------
    UnknownEvaluatorError, InvalidParamsError
        As for `validate`.
    """
    evaluator = get_evaluator(name)
    return Scorer(evaluator, evaluator.build(_parse(name, params, "")))


def _parse(name: str, params: Mapping[str, Any] | None, at: str) -> Any:
    evaluator = get_evaluator(name)
    given: object = {} if params is None else params
    flaw = find_flaw_and_pointer(given)
    if flaw is not None:
        raise InvalidParamsError(name, (ParameterProblem(at + flaw[1], flaw[0]),))
    try:
        return evaluator.params.model_validate(given, by_alias=True)
    except ValidationError as error:
        raise InvalidParamsError(name, describe_problems(error, at)) from None
