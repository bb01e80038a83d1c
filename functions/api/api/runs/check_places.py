"""Whether a project may call the places that its runs name: before a run is written, and again at every use."""

from collections.abc import Sequence

from coordination.environment import Environment
from coordination.errors import InvalidRequestError
from coordination.evaluator_requests import EvaluatorRequest, check_evaluators
from coordination.remote_places import find_evaluator_faults, find_host_faults, find_target_faults
from coordination.targets import BedrockTarget, HttpTarget, LambdaTarget, RecordedTarget


def check_places(
    environment: Environment,
    project: str,
    target: RecordedTarget | HttpTarget | LambdaTarget | BedrockTarget,
    evaluators: Sequence[EvaluatorRequest],
) -> None:
    """Make sure that a project may call what a target and evaluators name. Resolves names; no transaction is open.

    What is wrong with evaluators as such is left to `check_evaluators`.

    Raises
    ------
    InvalidRequestError
        A secret, a function, a model or a host that the project may not name, or a name that does not resolve; every
        place is pointed at.
    """
    outgoing = environment.settings.outgoing
    faults = find_target_faults(outgoing, target, project, "/target")
    urls: dict[str, str | None] = {"/target/url": target.url} if isinstance(target, HttpTarget) else {}
    checked, wrong = check_evaluators(evaluators, "/evaluators")
    if not wrong:
        faults += find_evaluator_faults(outgoing, checked, project, "/evaluators")
        for position, evaluator in enumerate(checked):
            urls[f"/evaluators/{position}/params/url"] = evaluator.params.get("url")
    faults += find_host_faults(environment.http_calls, project, urls)
    if faults:
        raise InvalidRequestError.at(faults)
