"""A write repeated under its Idempotency-Key takes effect once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from evalward_local.stack_client import StackClient

ROWS = [{"id": "1", "input": "a", "output": "a", "reference": "a"}]
ORDER = {"name": "run", "dataset": {"name": "answers"}, "evaluators": [{"name": "exact_match"}]}


def count_run_rows(client: StackClient, project: str) -> int:
    (row,) = client.look("SELECT count(*) AS runs FROM evals.runs WHERE tenant_id = %(project)s", {"project": project})
    return row["runs"]


def test_repeated_request_gets_the_same_body(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    path = f"/v1/projects/{project}/runs"

    first = client.request("POST", path, idempotency_key="nightly", json=ORDER)
    client.wait_for_run(project, first.json()["id"])
    # The structured-field form of a key is the same key, and the order of a body's members means nothing.
    second = client.request("POST", path, idempotency_key='"nightly"', json=dict(reversed(ORDER.items())))

    assert (first.status_code, second.status_code) == (202, 202)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert second.content == first.content
    assert second.headers["location"] == first.headers["location"]
    assert count_run_rows(client, project) == 1


def test_another_body_under_the_same_key_is_422(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    path = f"/v1/projects/{project}/runs"
    client.expect(202, "POST", path, idempotency_key="nightly", json=ORDER)

    problem = client.expect(422, "POST", path, idempotency_key="nightly", json={**ORDER, "name": "other"})

    assert problem["code"] == "idempotency_key_reused"
    assert count_run_rows(client, project) == 1


def test_refused_request_leaves_its_key_free(client: StackClient, project: str) -> None:
    path = f"/v1/projects/{project}/runs"
    client.expect(404, "POST", path, idempotency_key="nightly", json=ORDER)

    client.upload(project, "answers", ROWS)

    client.expect(202, "POST", path, idempotency_key="nightly", json=ORDER)


def test_keys_of_two_projects_and_two_principals_do_not_meet(
    client: StackClient, project: str, make_key: Callable[..., str]
) -> None:
    client.upload(project, "answers", ROWS)
    path = f"/v1/projects/{project}/runs"
    other = make_key({"project": project, "role": "runner"})

    first = client.expect(202, "POST", path, idempotency_key="nightly", json=ORDER)
    second = client.expect(202, "POST", path, idempotency_key="nightly", json=ORDER, key=other)

    assert first["id"] != second["id"]


def test_fifty_concurrent_duplicates_make_one_run(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    path = f"/v1/projects/{project}/runs"

    def send_until_answered(_number: int) -> tuple[httpx.Response, set[str]]:
        refusals: set[str] = set()

        def send() -> httpx.Response | None:
            answer = client.request("POST", path, idempotency_key="burst", json=ORDER)
            if answer.status_code in (409, 503):
                # 503 is the gateway's: more callers than environments.
                refusals.add(answer.json().get("code", "gateway"))
                return None
            return answer

        return client.wait(send, "an answer"), refusals

    with ThreadPoolExecutor(50) as threads:
        answers, refusals = zip(*threads.map(send_until_answered, range(50)), strict=True)

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert set().union(*refusals) <= {"idempotency_in_progress", "gateway"}
    assert count_run_rows(client, project) == 1
    assert len(client.expect(200, "GET", path)["items"]) == 1


def test_replay_of_a_new_key_omits_its_secret(client: StackClient, project: str) -> None:
    body = {"name": "pipeline", "grants": [{"project": project, "role": "runner"}]}
    idempotency_key = f"key of {project}".replace(" ", "-")

    first = client.expect(201, "POST", "/v1/keys", idempotency_key=idempotency_key, json=body)
    second = client.expect(201, "POST", "/v1/keys", idempotency_key=idempotency_key, json=body)

    secret = first.pop("secret")
    assert second == first
    assert client.expect(200, "GET", "/v1/whoami", key=secret)["principal"] == f"key:{first['id']}"


@pytest.mark.parametrize("header", ["", '""', "two words", 'open"', "a, b", "x" * 129])
def test_header_that_can_be_no_key_is_400(client: StackClient, project: str, header: str) -> None:
    answer = client.request("POST", f"/v1/projects/{project}/runs", idempotency_key=header, json=ORDER)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")


def test_repeated_upload_publishes_one_version(client: StackClient, project: str) -> None:
    path = f"/v1/projects/{project}/datasets?name=answers&format=jsonl"
    headers = {"content-type": "application/octet-stream"}
    content = b'{"id":"1","input":"a"}\n'

    first = client.request("POST", path, idempotency_key="up", content=content, headers=headers)
    second = client.request("POST", path, idempotency_key="up", content=content, headers=headers)
    third = client.request("POST", path, content=content, headers=headers)
    other = client.request("POST", path, idempotency_key="up", content=content + content, headers=headers)

    assert (first.status_code, second.status_code, third.status_code, other.status_code) == (201, 201, 200, 422)
    assert second.content == first.content == third.content
    assert other.json()["code"] == "idempotency_key_reused"
