-- Operational tables: completed mechanics, swept when their time has come.
SET LOCAL lock_timeout = '5s';

CREATE TABLE scheduler.jobs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    kind text NOT NULL CHECK (kind IN ('dataset_import')),
    state text NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'canceled', 'timed_out')),
    dedupe_key text NOT NULL,
    payload jsonb NOT NULL,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    result jsonb,
    error jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    started_at timestamptz,
    completed_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, kind, dedupe_key)
);
CREATE INDEX jobs_by_age ON scheduler.jobs (tenant_id, kind, created_at DESC, id DESC);

CREATE TABLE scheduler.estate_run_queue (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    queued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    acknowledged_at timestamptz,
    completed_at timestamptz,
    outcome text CHECK (outcome IN ('succeeded', 'failed', 'error', 'cancelled')),
    PRIMARY KEY (tenant_id, id),
    CHECK ((completed_at IS NULL) = (outcome IS NULL))
);

CREATE TABLE scheduler.policy_run_jobs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    run_id uuid NOT NULL,
    shard_no integer NOT NULL CHECK (shard_no >= 0),
    first_record integer NOT NULL CHECK (first_record >= 0),
    records integer NOT NULL CHECK (records > 0),
    byte_start bigint NOT NULL CHECK (byte_start >= 0),
    byte_end bigint NOT NULL,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, run_id, shard_no),
    CHECK (byte_end > byte_start)
);

ALTER TABLE scheduler.jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.estate_run_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.estate_run_queue FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.estate_run_queue
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.policy_run_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.policy_run_jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.policy_run_jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.jobs, scheduler.estate_run_queue, scheduler.policy_run_jobs
    TO evalward_app;
