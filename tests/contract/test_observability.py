"""What the page for those on call says, held to the template and the code."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from evalward_local.costs import make_table, place_table
from evalward_local.template import read_template

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/observability.md").read_text()
TEMPLATE = read_template(ROOT / "template.yaml")
RESOURCES = TEMPLATE.resources


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> dict[str, list[str]]:
    """Return the rows of a section's first table: name to its other cells."""
    table = re.findall(r"^\| `(\w+)`[^|]*\|(.+)\|$", section(title), re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in table}


def emitted_metrics() -> set[str]:
    """Return the names of the figures that the code writes."""
    names: set[str] = set()
    for room in ("functions", "layers"):
        for path in (ROOT / room).rglob("*.py"):
            source = path.read_text()
            if "emit_metrics(" not in source or path.name == "metrics.py":
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Dict) and node.values and isinstance(node.values[0], ast.Tuple):
                    names |= {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
    return names


def test_every_alarm_has_a_row_that_says_what_to_look_at_and_what_to_do() -> None:
    alarms = {name for name, one in RESOURCES.items() if one["Type"] == "AWS::CloudWatch::Alarm"}
    told = rows("Alarms")
    assert set(told) == alarms
    assert [name for name, cells in told.items() if len(cells) != 3 or not all(cells)] == []


def test_every_metric_is_told_and_every_told_metric_is_written() -> None:
    assert set(rows("Metrics")) == emitted_metrics()


def test_alarms_and_dashboard_ask_for_metrics_that_are_written() -> None:
    alarms = [one["Properties"] for one in RESOURCES.values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    asked = {alarm["MetricName"] for alarm in alarms if alarm.get("Namespace") == "evalward"}
    body = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    asked |= set(re.findall(r'\["evalward", "(\w+)"', body))
    assert asked <= emitted_metrics()


def test_every_function_has_a_place_on_the_dashboard() -> None:
    body = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    # The deploy hook works while someone looks at the deployment; the probe has an alarm and a check of the doctor.
    assert {name for name in TEMPLATE.code_folders if f"${{{name}}}" not in body} == {
        "CapacityProbeFunction",
        "SchemaMigrationFunction",
    }


def test_table_of_costs_is_made_of_its_figures() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    figures = json.loads((ROOT / "docs/costs.json").read_text())
    assert place_table(page, make_table(figures)) == page
    dearer = figures | {"prices_usd": {**figures["prices_usd"], "http_api_million_requests": 9.0}}
    assert place_table(page, make_table(dearer)) != page


def test_page_on_operations_tells_every_switch_and_every_endpoint() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    switches = [name for name in TEMPLATE.parameters if name.startswith(("Create", "Throttling"))]
    switches += ["WebAclArn", "ProvisionedConcurrency", "Tracing", "Architecture", "DatabaseHost", "VpcId"]
    assert [name for name in switches if f"`{name}" not in page] == []
    made = {name for name, one in RESOURCES.items() if one["Type"] == "AWS::EC2::VPCEndpoint"}
    assert made == {"EventEndpoint", "FunctionEndpoint", "QueueEndpoint", "SecretEndpoint", "StorageEndpoint"}
