"""What is said of the settings frame of `/evaluate`."""

from typing import Any

import orjson
import pytest
from coordination.errors import InvalidRequestError
from run_evaluation.evaluation_frames import FrameReader


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        ({"kind": "http"}, "/0/target/url"),
        ({"kind": "http", "url": "https://bot.example/", "timeout_seconds": 21}, "/0/target/timeout_seconds"),
        ({"kind": "recorded", "url": "https://bot.example/"}, "/0/target/url"),
        ({"kind": "other"}, "/0/target"),
    ],
)
def test_fault_in_a_target_is_named_by_its_place_in_the_frame(target: dict[str, Any], pointer: str) -> None:
    frame = orjson.dumps({"evaluators": [{"name": "exact_match"}], "target": target})

    with pytest.raises(InvalidRequestError) as caught:
        FrameReader(frame)

    assert [fault["pointer"] for fault in caught.value.errors] == [pointer]
