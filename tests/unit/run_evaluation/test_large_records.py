"""What is too large for a function or a judge is split, or an error of its own record."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from records.evaluators.llm_judge import LlmJudgeParams
from records.record import Record
from run_evaluation import function_scores, llm_judge

FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function:scorer"


@dataclass
class CountedFunctions:
    """A port to functions that gives every record a 1 and keeps the sizes of the questions."""

    sizes: list[int] = field(default_factory=list[int])

    def prepare(self, timeout_seconds: float) -> None:
        """There is nothing to prepare."""

    def invoke(self, function: str, payload: bytes, **_limits: Any) -> bytes:
        self.sizes.append(len(payload))
        return orjson.dumps(
            {"results": [{"record": one["record"], "score": 1} for one in orjson.loads(payload)["records"]]}
        )


def test_batch_that_is_too_large_for_one_call_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_scores, "_MAX_QUESTION_BYTES", 1000)
    port = CountedFunctions()
    environment: Any = SimpleNamespace(functions=port)
    score = function_scores.open_batch_scorer(environment, "mine", {"function": FUNCTION})
    records = [Record(id=f"r{at}", output="x" * (2000 if at == 3 else 300)) for at in range(6)]
    scores = score([(record, 1) for record in records])
    assert [one.status for one in scores] == ["scored", "scored", "scored", "error", "scored", "scored"]
    assert scores[3].message == "the record has more than 1000 bytes as a question"
    assert len(port.sizes) > 1
    assert max(port.sizes) <= 1000


def test_record_that_is_too_large_is_shown_to_no_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_judge, "_MAX_MATERIAL_BYTES", 1000)

    def never(*_arguments: Any, **_options: Any) -> Any:
        raise AssertionError("a model was asked")

    models = SimpleNamespace(prepare=CountedFunctions().prepare, converse=never)
    environment: Any = SimpleNamespace(models=models)
    judge = llm_judge.open_judge(environment, "demo", LlmJudgeParams(provider="bedrock", model="m", rubric="r"))
    score = judge(Record(id="r", output="x" * 2000), 10.0)
    assert (score.status, score.message) == ("error", "the record has more than 1000 bytes to be shown to a judge")
