-- Where the outcome of a run goes when it has a report.
SET LOCAL lock_timeout = '5s';

-- One sink of one run. The row is what makes it idempotent: its job may be swept.
CREATE TABLE evals.run_sinks (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    sink_no integer NOT NULL CHECK (sink_no >= 0),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    config jsonb NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'queued', 'succeeded', 'failed')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    error text,
    external_id text,
    completed_at timestamptz,
    PRIMARY KEY (tenant_id, run_id, sink_no),
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, run_id) REFERENCES evals.runs (tenant_id, id),
    CHECK ((state IN ('succeeded', 'failed')) = (completed_at IS NOT NULL))
);

ALTER TABLE evals.run_sinks ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_sinks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_sinks
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_sinks TO evalward_app;
