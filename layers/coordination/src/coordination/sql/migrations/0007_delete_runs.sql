-- What a deleted run leaves behind, and the index that finds runs whose retention is over.
SET LOCAL lock_timeout = '5s';

-- Says that a run was deleted through the API, so that a retry of the deletion is authorized and answered like the
-- first call. Holds nothing of the run but what authorization may look at; gone after 24 hours.
CREATE TABLE evals.run_tombstones (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    labels jsonb NOT NULL,
    deleted_by text NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, run_id),
    CHECK (expires_at > deleted_at)
);
CREATE INDEX run_tombstones_by_expiry ON evals.run_tombstones (tenant_id, expires_at);

ALTER TABLE evals.run_tombstones ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_tombstones FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_tombstones
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_tombstones TO evalward_app;

-- Retention walks a project's ended runs from the oldest on.
CREATE INDEX runs_by_end ON evals.runs (tenant_id, coalesce(finished_at, created_at), id)
    WHERE state IN ('succeeded', 'failed', 'error', 'cancelled');
