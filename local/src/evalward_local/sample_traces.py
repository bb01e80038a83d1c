"""Traces of a support assistant as the OpenTelemetry Collector writes them, with what a source must mask in them."""

import json
from datetime import datetime, timedelta
from typing import Any

_ANSWERS = (
    ("How do I download an invoice?", "Open Settings, then Billing, and choose Download next to the invoice."),
    ("Can I pay by bank transfer?", "Bank transfer is possible for yearly plans. Write to billing@example.com."),
    ("How do I reset my password?", "Choose Forgot password on the sign-in page."),
    ("Where is my API key?", "It is sk-ant-api03-notARealKey1234567890, under Settings, then Keys."),
    ("Can I export my data?", "Yes: Settings, then Export, makes a file of everything."),
)


def make_sample_traces(start: datetime) -> str:
    """Return an OTLP JSON file.

    Parameters
    ----------
    start
        When the first trace starts; the others follow, 20 ms apart. Each takes two seconds.
    """
    spans = [_make_span(number, start, question, answer) for number, (question, answer) in enumerate(_ANSWERS)]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def _make_span(number: int, start: datetime, question: str, answer: str) -> dict[str, Any]:
    begins = start + timedelta(milliseconds=20 * number)
    values: dict[str, dict[str, Any]] = {
        "input.value": {"stringValue": question},
        "output.value": {"stringValue": answer},
        "gen_ai.usage.output_tokens": {"intValue": str(len(answer) // 4)},
    }
    return {
        "traceId": f"{_microseconds(begins):032x}",
        "spanId": f"{number + 1:016x}",
        "parentSpanId": "",
        "name": "chat",
        "startTimeUnixNano": str(_microseconds(begins) * 1000),
        "endTimeUnixNano": str(_microseconds(begins + timedelta(seconds=2)) * 1000),
        "attributes": [{"key": key, "value": value} for key, value in values.items()],
    }


def _microseconds(instant: datetime) -> int:
    return int(instant.timestamp() * 1_000_000)
