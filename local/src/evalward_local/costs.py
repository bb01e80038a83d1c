"""What a deployment costs: measured milliseconds times list prices, as the table of docs/operations.md."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BEGIN, _END = "<!-- costs -->\n", "<!-- /costs -->"
_MINUTES_AN_HOUR = 60
_MILLION = 1_000_000
_GB = 10**9


def make_table(figures: Mapping[str, Any]) -> str:
    """Return the Markdown table of costs in US dollars.

    Parameters
    ----------
    figures
        docs/costs.json: prices, milliseconds and what a month is assumed to be made of.
    """
    prices, took, assumed = figures["prices_usd"], figures["measured"], figures["assumed"]
    memory, hours = assumed["memory_gb"], assumed["hours_a_month"]

    def invoke(function: str, milliseconds: float, times: float = 1) -> float:
        seconds = milliseconds / 1000 * memory[function] * prices["lambda_gb_second"]
        logs = assumed["log_bytes_an_invocation"] / _GB * prices["cloudwatch_log_gb"]
        return times * (seconds + logs + prices["lambda_million_requests"] / _MILLION)

    def message(times: float = 1) -> float:
        # Sent, received, deleted.
        return times * 3 * prices["sqs_million_requests"] / _MILLION

    write = invoke("api", took["keyed_write_ms"]) + prices["http_api_million_requests"] / _MILLION
    shards = assumed["shards_of_100k_records"]
    run = (
        invoke("evaluation", took["run_of_100k_records_ms"] / (shards + 2), shards + 2)
        + message(shards + 2)
        + shards * prices["s3_thousand_gets"] / 1000
        + write
    )
    publication = (
        invoke("conversion", took["import_of_100k_records_ms"])
        + message()
        + 3 * prices["s3_thousand_puts"] / 1000
        + 2 * prices["s3_thousand_gets"] / 1000
    )
    window = invoke("pull", assumed["pull_of_a_window_ms"]) + message() + prices["s3_thousand_puts"] / 1000
    window += invoke("evaluation", took["run_of_100k_records_ms"] / 100) + message(3)
    minutes = hours * _MINUTES_AN_HOUR
    pulses = (
        invoke("delivery", took["delivery_pulse_ms"], minutes)
        + invoke("pull", took["pull_pulse_ms"], minutes)
        + invoke("api", took["doctor_pulse_ms"], minutes / 5)
        + invoke("retention", took["keeper_pulse_ms"], minutes / 5)
    )
    watching = 22 * prices["cloudwatch_alarm_month"] + 3 * prices["cloudwatch_metric_month"]
    rows = [
        ("a million keyed writes", write * _MILLION),
        ("publication of 100,000 records", publication),
        ("a run of 100,000 records, three evaluators", run),
        ("a source a month, nightly, 1,000 traces", window * assumed["windows_of_a_source_a_month"]),
        ("a month at rest: pulses of the functions", pulses),
        ("a month at rest: alarms, metrics, four secrets", watching + 4 * prices["secret_month"]),
        (
            f"a month at rest: Aurora at {assumed['aurora_acu']} ACU, 10 GB",
            hours * assumed["aurora_acu"] * prices["aurora_acu_hour"] + 10 * prices["aurora_gb_month"],
        ),
        (
            "a month: four interface endpoints in two zones",
            4 * 2 * hours * prices["interface_endpoint_hour"],
        ),
        ("a month: 100 GB of published datasets", 100 * prices["s3_gb_month"]),
    ]
    lines = [f"| {name} | {_round(cost)} |" for name, cost in rows]
    return "\n".join(["| what | US dollars |", "|---|---:|", *lines]) + "\n"


def _round(cost: float) -> str:
    return f"{cost:.2f}" if cost >= 1 else f"{cost:.2g}"


def place_table(page: str, table: str) -> str:
    """Return the page with the table between its two marks."""
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}{table}{_END}{after}"


def main() -> None:
    """Write the table into docs/operations.md below the current folder."""
    docs = Path("docs")
    page = docs / "operations.md"
    page.write_text(place_table(page.read_text(), make_table(json.loads((docs / "costs.json").read_text()))))
    sys.stdout.write(f"{page}: table of costs\n")


if __name__ == "__main__":
    main()
