"""An example of every command, shown by its --help, in an order in which somebody could type them.

A test types them all on a running stack. Ids, addresses and instants stand for those of the reader.
"""

EXAMPLES: dict[str, str] = {
    "login": "evalward login https://api.example.com -p demo --key-stdin < api.key",
    "whoami": "evalward whoami",
    "projects create": "evalward projects create demo --run-retention 90d",
    "projects update": 'evalward projects update demo --description "support assistant"',
    "projects list": "evalward projects list",
    "projects show": "evalward projects show demo",
    "keys create": "evalward keys create ci --grant demo=editor > ci.key",
    "keys list": "evalward keys list",
    "keys delete": "evalward keys delete 3f9ac1d27be04856 --yes",
    "evaluators": "evalward evaluators",
    "evaluate": "evalward evaluate answers.jsonl -e token_f1 -e exact_match",
    "datasets publish": "evalward datasets publish answers.jsonl --map output=/answer",
    "datasets list": "evalward datasets list --name answers",
    "datasets show": "evalward datasets show answers@1",
    "datasets head": "evalward datasets head answers --limit 3",
    "datasets content": "evalward datasets content answers --output published.jsonl",
    "imports create": (
        "evalward imports create --name may --map output=/answer \\\n    s3://data/datasets/incoming/demo/may.jsonl"
    ),
    "imports list": "evalward imports list --limit 5",
    "imports show": "evalward imports show 8d1f0a52-6c3e-4b7a-9e21-5f40c7d6ab13",
    "runs create": "evalward runs create -f run.yaml --label team=search --wait",
    "runs wait": "evalward runs wait latest --wait-seconds 600",
    "runs list": "evalward runs list --state succeeded --label team=search",
    "runs show": "evalward runs show latest",
    "runs results": "evalward runs results latest --status error --limit 10",
    "runs outputs": "evalward runs outputs latest --limit 10",
    "runs report": "evalward runs report latest --baseline previous",
    "runs compare": "evalward runs compare previous latest --fail-on-regression",
    "runs label": "evalward runs label latest evalsi.keep=true draft-",
    "runs cancel": "evalward runs cancel latest",
    "runs resume": "evalward runs resume latest --wait",
    "runs delete": "evalward runs delete previous --yes",
    "sources preview": "evalward sources preview -f source.yaml --after 2027-01-01T00:00:00Z",
    "sources apply": "evalward sources apply -f source.yaml",
    "sources list": "evalward sources list",
    "sources show": "evalward sources show nightly",
    "sources summary": "evalward sources summary nightly",
    "sources windows": "evalward sources windows nightly --state missed_deadline",
    "sources run": "evalward sources run nightly 2026-01-31T02:00:00Z",
    "sources skip": "evalward sources skip nightly 2026-01-30T02:00:00Z",
    "sources pause": "evalward sources pause nightly",
    "sources resume": "evalward sources resume nightly",
    "sources retire": "evalward sources retire nightly --yes",
    "webhooks create": (
        "evalward webhooks create ci --event run.finished \\\n    --url https://ci.example.com/hook > ci.secret"
    ),
    "webhooks list": "evalward webhooks list",
    "webhooks show": "evalward webhooks show ci",
    "webhooks test": "evalward webhooks test ci",
    "webhooks deliveries": "evalward webhooks deliveries ci --state failed",
    "webhooks redeliver": "evalward webhooks redeliver 1b6e7c90-42d8-4f3a-8a55-0c9d7e21f6b4",
    "webhooks delete": "evalward webhooks delete ci --yes",
    "failures list": "evalward failures list --state unresolved",
    "failures resolve": "evalward failures resolve c2a94e17-0d5b-4e86-b3f8-71a6d09e2c45",
    "claims list": "evalward claims list",
    "claims resolve": "evalward claims resolve 5e70b8d3-91fc-4a26-8d07-e3b2c4f6a918 happened",
    "pending list": "evalward pending list",
    "pending forget": "evalward pending forget 90b1c7e2d4a8f6350e1d2c3b4a596877 --yes",
    "datasets delete": "evalward datasets delete answers@1 --yes",
    "doctor": "evalward doctor",
    "audit": "evalward audit --project demo --limit 20",
    "logout": "evalward logout",
}


def as_epilog(command: str) -> str:
    """Return the example of a command as the end of its help, each line as it is typed."""
    # \b keeps lines from being wrapped.
    return f"\b\nExample:\n{EXAMPLES[command]}"
