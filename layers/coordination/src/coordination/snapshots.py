"""Where the snapshots of source runs lie in the bucket."""

from uuid import UUID


def snapshot_prefix(project: str, run_id: UUID) -> str:
    """Return the prefix of all objects of a run's snapshot; they go with the run."""
    return f"snapshots/{project}/{run_id}/"


def snapshot_key(project: str, run_id: UUID, sha256: str) -> str:
    """Return the key of a snapshot.

    Its content is part of it: an attempt that was cut short, or a holder of a lost lease, never stands in the way of
    another one that read something else, and never changes what that one wrote.
    """
    return f"{snapshot_prefix(project, run_id)}{sha256}.jsonl"


def manifest_key_beside(path: str) -> str:
    """Return the key of the manifest that lies beside a canonical object."""
    return f"{path.removesuffix('.jsonl')}.manifest.json"
