"""What every caller meets: keys, permissions, problems, limits, and what the API says of itself."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from evalward_local.running_stack import PROJECT_FOLDER
from evalward_local.stack_client import StackClient

MIB = 1024 * 1024
RUN = {"name": "run", "dataset": {"name": "missing"}, "evaluators": [{"name": "exact_match"}]}
OCTETS = {"content-type": "application/octet-stream"}


def test_whoami_tells_principal_and_grants(client: StackClient, project: str, make_key: Callable[..., str]) -> None:
    key = make_key({"project": project, "permissions": ["runs.read"]})

    me = client.expect(200, "GET", "/v1/whoami", key=key)

    assert me["principal"] == f"key:{key.split('_')[1]}"
    assert me["grants"] == [{"project": project, "permissions": ["runs.read"], "role": None}]


def test_key_that_may_only_read_runs_may_not_create_them(
    client: StackClient, project: str, make_key: Callable[..., str]
) -> None:
    key = make_key({"project": project, "permissions": ["runs.read"]})

    problem = client.expect(403, "POST", f"/v1/projects/{project}/runs", key=key, json=RUN)

    assert problem["code"] == "permission_denied"
    assert "runs.create" in problem["detail"]
    assert client.expect(200, "GET", f"/v1/projects/{project}/runs", key=key)["items"] == []
    events = client.expect(200, "GET", f"/v1/audit?project={project}")["items"]
    assert [event["outcome"] for event in events if event["operation"] == "runs.create"] == ["denied"]


def test_unknown_project_and_one_without_a_grant_are_the_same_404(
    client: StackClient, project: str, make_key: Callable[..., str]
) -> None:
    key = make_key({"project": project, "role": "editor"})
    client.request("POST", "/v1/projects", json={"id": "hidden"})

    for other in ("hidden", "no-such-project"):
        problem = client.expect(404, "POST", f"/v1/projects/{other}/runs", key=key, json=RUN)
        assert problem["code"] == "not_found"
        assert problem["detail"].replace(other, "?") == "There is no project '?', or your key has no grant on it."


@pytest.mark.parametrize("key", ["", "ew_0000000000000000_" + "0" * 64, "no-key"])
def test_call_without_a_valid_key_is_401(client: StackClient, key: str) -> None:
    answer = client.request("GET", "/v1/whoami", key=key)

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_deleted_key_stops_working_also_for_replays(
    client: StackClient, project: str, make_key: Callable[..., str]
) -> None:
    key = make_key({"project": project, "role": "editor"})
    client.upload(project, "answers", [{"id": "1", "input": "a", "output": "a", "reference": "a"}])
    order = {**RUN, "dataset": {"name": "answers"}}
    path = f"/v1/projects/{project}/runs"
    client.expect(202, "POST", path, key=key, idempotency_key="once", json=order)

    client.expect(204, "DELETE", f"/v1/keys/{key.split('_')[1]}")

    client.expect(401, "POST", path, key=key, idempotency_key="once", json=order)


def test_invalid_body_is_refused_with_a_pointer_to_each_place(client: StackClient, project: str) -> None:
    body = {
        "name": "",
        "dataset": {"name": "answers"},
        "evaluators": [{"name": "exact_match", "params": {"ignore_case": "yes"}}],
        "surplus": 1,
    }

    answer = client.request("POST", f"/v1/projects/{project}/runs", json=body)

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "invalid_request"
    assert {error["pointer"] for error in problem["errors"]} == {"/name", "/surplus"}


def test_unknown_evaluator_parameter_and_gate_are_named_at_their_places(client: StackClient, project: str) -> None:
    body = {
        "name": "run",
        "dataset": {"name": "answers"},
        "evaluators": [
            {"name": "no_such"},
            {"name": "token_f1", "params": {"threshold": 2}},
            {"name": "exact_match"},
            {"name": "exact_match"},
        ],
        "gates": [{"metric": "bleu", "stat": "mean", "min": 0.5}],
    }

    problem = client.expect(400, "POST", f"/v1/projects/{project}/runs", json=body)

    assert {error["pointer"] for error in problem["errors"]} == {
        "/evaluators/0/name",
        "/evaluators/1/params/threshold",
        "/evaluators/3/id",
        "/gates/0/metric",
    }


@pytest.mark.parametrize("content", [b"{", b"[]", b'"text"', b"\xff\xfe", b""])
def test_body_that_is_no_json_object_is_400(client: StackClient, project: str, content: bytes) -> None:
    answer = client.request(
        "POST", f"/v1/projects/{project}/runs", content=content, headers={"content-type": "application/json"}
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_other_content_type_is_415_and_other_method_405(client: StackClient, project: str) -> None:
    answer = client.request(
        "POST", f"/v1/projects/{project}/runs", content=b"{}", headers={"content-type": "text/plain"}
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")

    answer = client.request("PUT", f"/v1/projects/{project}/runs", json={})
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"


def test_every_answer_carries_the_gateways_request_id(client: StackClient, project: str) -> None:
    for method, path in (("GET", "/healthz"), ("GET", "/v1/projects"), ("GET", f"/v1/projects/{project}/runs/x")):
        answer = client.request(method, path)
        assert answer.headers["x-request-id"] == answer.headers["apigw-requestid"]
    assert answer.status_code == 404
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_health_tells_the_limits(client: StackClient) -> None:
    health = client.expect(200, "GET", "/healthz", key="")

    assert (health["status"], health["database"]) == ("ok", "reachable")
    assert health["limits"]["direct_upload_bytes"] == 4 * MIB


def test_served_openapi_document_is_the_checked_in_one(client: StackClient) -> None:
    checked_in = PROJECT_FOLDER / "functions" / "api" / "api" / "reference" / "openapi.json"

    answer = client.request("GET", "/v1/openapi.json", key="")

    assert answer.status_code == 200
    assert answer.json() == json.loads(Path(checked_in).read_bytes())


def test_documentation_page_is_served(client: StackClient) -> None:
    answer = client.request("GET", "/docs", key="")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "/v1/openapi.json" in answer.text


def test_catalogue_lists_evaluators_with_parameters(client: StackClient) -> None:
    evaluators = {one["name"]: one for one in client.expect(200, "GET", "/v1/evaluators")["items"]}

    assert {"exact_match", "contains", "token_f1", "latency", "json_schema"} <= set(evaluators)
    assert evaluators["token_f1"]["kind"] == "number"
    assert evaluators["token_f1"]["params_schema"]["properties"]["threshold"]


def test_upload_over_4_mib_is_a_problem_that_names_another_way(client: StackClient, project: str) -> None:
    path = f"/v1/projects/{project}/datasets?name=large&format=jsonl"

    problem = client.expect(413, "POST", path, content=b"x" * (4 * MIB + 1), headers=OCTETS)

    assert problem["code"] == "payload_too_large"
    assert "datasets/incoming" in problem["detail"]


def test_upload_of_5_mib_is_refused_by_whoever_meets_it_first(client: StackClient, project: str) -> None:
    path = f"/v1/projects/{project}/datasets?name=large&format=jsonl"

    answer = client.request("POST", path, content=b"x" * (5 * MIB), headers=OCTETS)

    # Base64 makes it larger than a Lambda request may be, so the gateway answers in its own words.
    assert answer.status_code == 413
    assert client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"] == []
