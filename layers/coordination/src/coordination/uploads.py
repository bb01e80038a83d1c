"""Presigned uploads: what dataset_conversion and retention_sweep know of them alike."""

from uuid import UUID


def staging_key(project: str, upload_id: UUID) -> str:
    """Return where an upload's file is put: outside the incoming prefix, so that it imports nothing by itself."""
    return f"datasets/uploads/{project}/{upload_id}"


def upload_lease_name(project: str, upload_id: UUID) -> str:
    """Return the name of the lease under which an upload is finalized or recovered."""
    return f"upload:{project}:{upload_id}"
