from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api

PROJECT = {
    "description": "",
    "quotas": {"max_stored_runs": None, "max_dataset_bytes": None},
    "run_retention": None,
    "paused": False,
}
VIEWER = {"project": "*", "role": "viewer"}
INSTALLATION = ["projects.manage", "keys.manage", "audit.read"]


def test_created_project_is_answered_with_every_field_and_its_location(service: Api) -> None:
    reply = service.post("/v1/projects", {"id": "demo"})
    assert reply.status == 201
    assert reply.headers["location"] == "/v1/projects/demo"
    body = reply.json
    times = body.pop("created_at"), body.pop("updated_at")
    assert all(time.endswith("Z") for time in times)
    assert body == PROJECT | {"id": "demo", "created_by": f"key:{service.admin_key[3:19]}"}
    assert service.get("/v1/projects/demo").content == reply.content


def test_project_keeps_all_that_was_sent(service: Api) -> None:
    sent = {
        "id": "demo",
        "description": "ünïcode",
        "quotas": {"max_stored_runs": 3, "max_dataset_bytes": 2**40},
        "run_retention": "30d",
        "paused": True,
    }
    assert service.post("/v1/projects", sent).status == 201
    assert service.get("/v1/projects/demo").json.items() >= sent.items()


def test_taken_id_is_a_409(service: Api) -> None:
    service.post("/v1/projects", {"id": "demo"})
    reply = service.post("/v1/projects", {"id": "demo"})
    assert (reply.status, reply.code) == (409, "project_exists")


@pytest.mark.parametrize("name", ["a", "0", "a-", "a" * 63, "a-b-c"])
def test_every_allowed_id_can_be_read_again(service: Api, name: str) -> None:
    assert service.post("/v1/projects", {"id": name}).status == 201
    assert service.get(f"/v1/projects/{name}").json["id"] == name


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/id"),
        ({"id": "Upper"}, "/id"),
        ({"id": "-a"}, "/id"),
        ({"id": "a" * 64}, "/id"),
        ({"id": "a\n"}, "/id"),
        ({"id": 1}, "/id"),
        ({"id": "a", "description": "x" * 1001}, "/description"),
        ({"id": "a", "quotas": {"max_stored_runs": 0}}, "/quotas/max_stored_runs"),
        ({"id": "a", "quotas": {"max_stored_runs": "3"}}, "/quotas/max_stored_runs"),
        ({"id": "a", "quotas": {"no": 1}}, "/quotas/no"),
        ({"id": "a", "run_retention": "1m"}, "/run_retention"),
        ({"id": "a", "run_retention": "PT59M"}, "/run_retention"),
        ({"id": "a", "paused": 1}, "/paused"),
    ],
)
def test_field_that_is_wrong_is_named_by_its_pointer(
    service: Api, database: FreshDatabase, body: dict[str, Any], pointer: str
) -> None:
    reply = service.post("/v1/projects", body)
    assert (reply.status, reply.code, reply.pointers) == (400, "invalid_request", [pointer])
    assert database.look_up("SELECT count(*) FROM coordination.projects") == 0


def test_patch_changes_what_was_sent_and_keeps_the_rest(service: Api) -> None:
    service.post("/v1/projects", {"id": "demo", "description": "kept", "run_retention": "30d"})
    reply = service.call("PATCH", "/v1/projects/demo", {"paused": True, "run_retention": None})
    assert reply.status == 200
    assert (reply.json["paused"], reply.json["run_retention"], reply.json["description"]) == (True, None, "kept")
    assert reply.json["updated_at"] > reply.json["created_at"]


@pytest.mark.parametrize("field", ["description", "quotas", "paused"])
def test_patch_with_null_where_there_is_no_null_is_a_400(service: Api, field: str) -> None:
    service.post("/v1/projects", {"id": "demo"})
    reply = service.call("PATCH", "/v1/projects/demo", {field: None})
    assert (reply.status, reply.pointers) == (400, [f"/{field}"])


def test_patch_of_a_quota_keeps_the_other_quota(service: Api) -> None:
    service.post("/v1/projects", {"id": "demo", "quotas": {"max_stored_runs": 3, "max_dataset_bytes": 9}})
    reply = service.call("PATCH", "/v1/projects/demo", {"quotas": {"max_stored_runs": None}})
    assert reply.json["quotas"] == {"max_stored_runs": None, "max_dataset_bytes": 9}


def test_patch_that_lifts_a_limit_is_another_request_than_one_that_leaves_it(service: Api) -> None:
    service.post("/v1/projects", {"id": "demo", "run_retention": "30d"})
    service.call("PATCH", "/v1/projects/demo", {}, idempotency_key="k")
    reply = service.call("PATCH", "/v1/projects/demo", {"run_retention": None}, idempotency_key="k")
    assert (reply.status, reply.code) == (422, "idempotency_key_reused")


def test_two_patches_at_once_both_count(
    service: Api, make_order: Callable[..., Any], perform_together: Callable[..., list[Any]]
) -> None:
    service.post("/v1/projects", {"id": "demo"})
    changes = [{"description": "x"}, {"paused": True}, {"run_retention": "30d"}, {"quotas": {"max_stored_runs": 3}}]
    path = {"project": "demo"}
    orders = [make_order("projects.update", change, path, service.admin_key) for change in changes]
    assert [reply.status for reply in perform_together(orders)] == [200] * 4
    project = service.get("/v1/projects/demo").json
    assert (project["description"], project["paused"], project["run_retention"]) == ("x", True, "30d")
    assert project["quotas"]["max_stored_runs"] == 3


def test_projects_are_listed_by_id_page_by_page_and_stable_under_inserts(
    service: Api, make_project: Callable[..., str]
) -> None:
    for name in ("b", "d", "f", "h"):
        make_project(name)
    first = service.get("/v1/projects", query="limit=2").json
    make_project("a")
    make_project("e")
    second = service.get("/v1/projects", query=f"limit=2&cursor={first['next_cursor']}").json
    third = service.get("/v1/projects", query=f"limit=2&cursor={second['next_cursor']}").json
    seen = [[project["id"] for project in page["items"]] for page in (first, second, third)]
    assert seen == [["b", "d"], ["e", "f"], ["h"]]
    assert third["next_cursor"] is None


def test_list_shows_only_projects_with_a_grant(
    service: Api, make_project: Callable[..., str], make_key: Callable[..., str]
) -> None:
    for name in ("one", "three", "two"):
        make_project(name)
    key = make_key({"project": "one", "role": "viewer"}, {"project": "two", "permissions": ["evaluate"]})
    page = service.get("/v1/projects", key=key).json
    assert [project["id"] for project in page["items"]] == ["one", "two"]
    assert page["next_cursor"] is None


def test_cursor_of_another_list_is_refused(service: Api, make_project: Callable[..., str]) -> None:
    for name in ("a", "b"):
        make_project(name)
    cursor = service.get("/v1/projects", query="limit=1").json["next_cursor"]
    reply = service.get("/v1/keys", query=f"cursor={cursor}")
    assert (reply.status, reply.code) == (400, "invalid_cursor")


def test_created_key_works_with_its_grants_and_shows_its_secret_once(service: Api) -> None:
    reply = service.post("/v1/keys", {"name": "nightly", "grants": [VIEWER]})
    assert reply.status == 201
    key = reply.json
    assert reply.headers["location"] == f"/v1/keys/{key['id']}"
    assert key["prefix"] == f"ew_{key['id']}_"
    assert key["secret"].startswith(key["prefix"])
    who = service.get("/v1/whoami", key=key["secret"]).json
    assert (who["principal"], who["name"]) == (f"key:{key['id']}", "nightly")
    assert [grant["role"] for grant in who["grants"]] == ["viewer"]
    listed = service.get("/v1/keys")
    assert key["secret"][20:].encode() not in listed.content
    newest = listed.json["items"][0]
    assert newest["id"] == key["id"]
    assert "secret" not in newest


def test_replay_of_a_created_key_is_the_same_answer_without_the_secret(service: Api) -> None:
    body = {"name": "nightly", "grants": [VIEWER]}
    first = service.post("/v1/keys", body, idempotency_key="k").json
    again = service.post("/v1/keys", body, idempotency_key="k")
    assert again.headers["idempotency-replayed"] == "true"
    secret = first.pop("secret")
    assert again.json == first
    assert secret.encode() not in again.content


def test_secrets_of_keys_are_in_no_dump_of_the_database(service: Api, database: FreshDatabase) -> None:
    secret = service.post("/v1/keys", {"name": "n", "grants": [VIEWER]}, idempotency_key="my-key").json["secret"]
    command = [str(database.server.binaries / "pg_dump"), database.server.url(database.name, "superuser")]
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert secret[3:19] in dump
    for text in (secret[20:], service.admin_key[20:], "my-key"):
        assert text not in dump
        assert text.encode().hex() not in dump


def test_deleted_key_stops_working_at_once_even_for_its_replays(service: Api) -> None:
    key = service.post("/v1/keys", {"name": "n", "grants": [{"project": "*", "permissions": INSTALLATION}]}).json
    create = {"body": {"id": "demo"}, "key": key["secret"], "idempotency_key": "k"}
    assert service.post("/v1/projects", **create).status == 201
    assert service.post("/v1/projects", **create).headers["idempotency-replayed"] == "true"
    assert service.call("DELETE", f"/v1/keys/{key['id']}").status == 204
    assert service.post("/v1/projects", **create).status == 401
    assert service.call("DELETE", f"/v1/keys/{key['id']}").status == 404


def test_lost_permission_is_a_403_and_never_a_replay(
    service: Api, make_key: Callable[..., str], database: FreshDatabase
) -> None:
    key = make_key({"project": "*", "permissions": ["projects.manage"]})
    create = {"body": {"id": "demo"}, "key": key, "idempotency_key": "k"}
    assert service.post("/v1/projects", **create).status == 201
    database.look("""UPDATE coordination.api_keys SET grants = '[{"project": "*", "role": "viewer"}]'
                     WHERE created_by = 'test'""")
    reply = service.post("/v1/projects", **create)
    assert (reply.status, reply.code) == (403, "permission_denied")


@pytest.mark.parametrize(
    "grant",
    [
        {"project": "*", "role": "owner"},
        {"project": "*", "role": "viewer"},
        {"project": "other", "role": "viewer"},
        {"project": "demo", "role": "admin"},
        {"project": "demo", "permissions": ["runs.delete"]},
    ],
)
def test_nobody_makes_a_key_that_is_stronger_than_their_own(
    service: Api, make_key: Callable[..., str], database: FreshDatabase, grant: dict[str, Any]
) -> None:
    key = make_key({"project": "*", "permissions": ["keys.manage"]}, {"project": "demo", "role": "editor"})
    reply = service.post("/v1/keys", {"name": "strong", "grants": [grant]}, key=key)
    assert (reply.status, reply.code) == (403, "permission_denied")
    assert database.look_up("SELECT count(*) FROM coordination.api_keys WHERE name = 'strong'") == 0
    assert database.look("SELECT operation, outcome FROM coordination.audit_events") == [
        {"operation": "keys.create", "outcome": "denied"}
    ]
    weaker = {"project": "demo", "role": "runner"}
    assert service.post("/v1/keys", {"name": "weak", "grants": [weaker]}, key=key).status == 201


def test_nobody_deletes_a_key_that_is_stronger_than_their_own(service: Api, make_key: Callable[..., str]) -> None:
    key = make_key({"project": "*", "permissions": ["keys.manage"]}, {"project": "demo", "role": "editor"})
    reply = service.call("DELETE", f"/v1/keys/{service.admin_key[3:19]}", key=key)
    assert (reply.status, reply.code) == (403, "permission_denied")
    assert service.get("/v1/whoami").status == 200
    weaker = make_key({"project": "demo", "role": "runner"})
    assert service.call("DELETE", f"/v1/keys/{weaker[3:19]}", key=key).status == 204
    assert service.call("DELETE", f"/v1/keys/{key[3:19]}", key=key).status == 204


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"grants": []}, "/grants"),
        ({"grants": [{"project": "*"}]}, "/grants/0"),
        ({"grants": [{"project": "*", "role": "viewer", "permissions": ["evaluate"]}]}, "/grants/0"),
        ({"grants": [{"project": "*", "permissions": ["*"]}]}, "/grants/0/permissions/0"),
        ({"grants": [{"project": "demo", "permissions": ["keys.manage"]}]}, "/grants/0"),
        ({"grants": [{"project": "demo", "role": "owner"}]}, "/grants/0"),
        ({"grants": [{"project": "De mo", "role": "viewer"}]}, "/grants/0/project"),
        ({"expires_at": "2026-01-01T00:00:00"}, "/expires_at"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"expires_at": 1}, "/expires_at"),
    ],
)
def test_key_that_is_not_right_is_refused_at_its_pointer(service: Api, change: dict[str, Any], pointer: str) -> None:
    reply = service.post("/v1/keys", {"name": "n", "grants": [VIEWER]} | change)
    assert (reply.status, reply.pointers) == (400, [pointer])


def test_keys_are_listed_newest_first_page_by_page(service: Api) -> None:
    made = [service.post("/v1/keys", {"name": f"n{n}", "grants": [VIEWER]}).json["id"] for n in range(3)]
    first = service.get("/v1/keys", query="limit=2").json
    service.post("/v1/keys", {"name": "later", "grants": [VIEWER]})
    second = service.get("/v1/keys", query=f"limit=2&cursor={first['next_cursor']}").json
    assert [key["id"] for key in first["items"] + second["items"]] == [*reversed(made), service.admin_key[3:19]]
    assert second["next_cursor"] is None


def test_writes_are_audited_with_the_request_id_and_reads_are_not(service: Api) -> None:
    created = service.post("/v1/projects", {"id": "demo"})
    service.get("/v1/projects")
    service.post("/v1/projects", {"id": "demo"})
    updated = service.call("PATCH", "/v1/projects/demo", {"paused": True})
    events = service.get("/v1/audit").json["items"]
    assert [(event["operation"], event["project"], event["outcome"], event["request_id"]) for event in events] == [
        ("projects.update", "demo", "allowed", updated.headers["x-request-id"]),
        ("projects.create", "-", "allowed", created.headers["x-request-id"]),
    ]


def test_audit_is_paged_and_filtered_by_project(service: Api) -> None:
    for name in ("a", "b", "c"):
        service.post("/v1/projects", {"id": name})
    service.call("PATCH", "/v1/projects/b", {"paused": True})
    page = service.get("/v1/audit", query="limit=3").json
    rest = service.get("/v1/audit", query=f"limit=3&cursor={page['next_cursor']}").json
    assert len(page["items"] + rest["items"]) == 4
    only = service.get("/v1/audit", query="project=b").json["items"]
    assert [event["operation"] for event in only] == ["projects.update"]


def test_replay_is_not_audited_again(service: Api) -> None:
    for _ in range(3):
        service.post("/v1/projects", {"id": "demo"}, idempotency_key="k")
    assert len(service.get("/v1/audit").json["items"]) == 1


def test_keyed_answers_tell_what_is_left_of_the_scope(service: Api) -> None:
    replies = [service.post("/v1/projects", {"id": name}, idempotency_key=name) for name in ("a", "b", "a")]
    assert [reply.headers["idempotency-capacity-remaining"] for reply in replies] == ["1023", "1022", "1022"]
    assert "idempotency-capacity-remaining" not in service.post("/v1/projects", {"id": "c"}).headers


def test_refused_write_under_a_key_stores_nothing(service: Api, database: FreshDatabase) -> None:
    service.post("/v1/projects", {"id": "demo"})
    assert service.post("/v1/projects", {"id": "demo"}, idempotency_key="k").status == 409
    assert service.post("/v1/projects", {"id": "Bad"}, idempotency_key="k").status == 400
    assert database.look_up("SELECT count(*) FROM coordination.idempotency_records") == 0
    assert service.post("/v1/projects", {"id": "other"}, idempotency_key="k").status == 201


def test_key_bound_to_one_operation_is_refused_for_another(service: Api) -> None:
    service.post("/v1/projects", {"id": "demo"}, idempotency_key="k")
    reply = service.post("/v1/keys", {"name": "n", "grants": [VIEWER]}, idempotency_key="k")
    assert (reply.status, reply.code) == (422, "idempotency_key_reused")
    assert reply.json["operation"] == "projects.create"


def test_quoted_and_bare_key_are_the_same_key(service: Api) -> None:
    service.post("/v1/projects", {"id": "demo"}, idempotency_key="abc")
    assert service.post("/v1/projects", {"id": "demo"}, idempotency_key='"abc"').status == 201


def test_order_of_members_and_defaults_written_out_do_not_make_another_request(service: Api) -> None:
    service.post("/v1/projects", {"id": "demo", "description": "x"}, idempotency_key="k")
    again = service.post("/v1/projects", {"paused": False, "description": "x", "id": "demo"}, idempotency_key="k")
    assert (again.status, again.headers["idempotency-replayed"]) == (201, "true")
