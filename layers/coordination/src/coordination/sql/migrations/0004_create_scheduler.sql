-- Operational tables, swept when their time has come, and what they hang on.
SET LOCAL lock_timeout = '5s';

CREATE TABLE IF NOT EXISTS scheduler.jobs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    kind text NOT NULL CHECK (kind IN ('dataset_import', 'webhook_delivery', 'sink_export')),
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
CREATE INDEX IF NOT EXISTS jobs_by_age ON scheduler.jobs (tenant_id, kind, created_at DESC, id DESC);

CREATE TABLE IF NOT EXISTS scheduler.estate_run_queue (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    queued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    acknowledged_at timestamptz,
    completed_at timestamptz,
    outcome text CHECK (outcome IN ('succeeded', 'failed', 'error', 'cancelled')),
    PRIMARY KEY (tenant_id, id),
    CHECK ((completed_at IS NULL) = (outcome IS NULL))
);

CREATE TABLE IF NOT EXISTS scheduler.policy_run_jobs (
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

-- When a source ticks. One row a source; a retired one stays. Custody.
CREATE TABLE IF NOT EXISTS scheduler.schedules (
    tenant_id text NOT NULL,
    id text NOT NULL CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    cron text NOT NULL CHECK (length(cron) <= 200),
    cron_sets jsonb NOT NULL,
    grammar_version integer NOT NULL CHECK (grammar_version >= 1),
    cursor_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused boolean NOT NULL DEFAULT false,
    retired_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

-- One tick that was worked on. Operational: swept when it has ended.
CREATE TABLE IF NOT EXISTS scheduler.runs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    schedule_id text NOT NULL,
    tick_at timestamptz NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'planning'
        CHECK (state IN ('planning', 'queued', 'running', 'completed', 'error', 'cancelled')),
    evaluation_id uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, schedule_id) REFERENCES scheduler.schedules (tenant_id, id),
    CHECK (window_start < window_end)
);
CREATE INDEX IF NOT EXISTS runs_by_schedule ON scheduler.runs (tenant_id, schedule_id, created_at DESC, id DESC);
CREATE UNIQUE INDEX IF NOT EXISTS runs_in_planning ON scheduler.runs (tenant_id, schedule_id, tick_at) WHERE state = 'planning';
CREATE UNIQUE INDEX IF NOT EXISTS runs_by_evaluation ON scheduler.runs (tenant_id, evaluation_id) WHERE evaluation_id IS NOT NULL;

-- The assembly of one window's traces into a snapshot; its id is that of its tick. Operational: swept when it has ended.
CREATE TABLE IF NOT EXISTS scheduler.graph_jobs (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    schedule_id text NOT NULL,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'completed', 'failed', 'canceled')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    traces integer,
    snapshot_bytes bigint,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

-- Why work failed: failures of the same kind and the same normalized error are one row. Operational: swept when resolved.
CREATE TABLE IF NOT EXISTS scheduler.failure_signatures (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    signature text NOT NULL CHECK (signature ~ '^[0-9a-f]{64}$'),
    kind text NOT NULL CHECK (length(kind) BETWEEN 1 AND 100),
    work text NOT NULL CHECK (length(work) BETWEEN 1 AND 300),
    error text NOT NULL CHECK (length(error) <= 2000),
    sample text NOT NULL DEFAULT '' CHECK (length(sample) <= 2000),
    state text NOT NULL DEFAULT 'unresolved' CHECK (state IN ('unresolved', 'investigating', 'resolved', 'wont_fix')),
    occurrence_count bigint NOT NULL DEFAULT 1 CHECK (occurrence_count >= 1),
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    resolved_at timestamptz,
    resolved_by text,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, signature)
);
CREATE INDEX IF NOT EXISTS failure_signatures_by_age ON scheduler.failure_signatures (tenant_id, last_seen_at DESC, id DESC);
CREATE INDEX IF NOT EXISTS failure_signatures_open ON scheduler.failure_signatures (tenant_id, kind, work)
    WHERE state IN ('unresolved', 'investigating');

-- What causes work: one row a cause, kept up to date in place. Custody. Its latest job is kept for it.
CREATE TABLE IF NOT EXISTS scheduler.triggers (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    kind text NOT NULL CHECK (kind IN ('source', 'incoming_prefix', 'route')),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 1000),
    last_job_id uuid,
    job_count bigint NOT NULL DEFAULT 0 CHECK (job_count >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_job_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, kind, name),
    FOREIGN KEY (tenant_id, last_job_id) REFERENCES scheduler.jobs (tenant_id, id)
);
CREATE INDEX IF NOT EXISTS triggers_by_job ON scheduler.triggers (tenant_id, last_job_id);

-- Outcomes of jobs that were swept. Goes after a window of its own.
CREATE TABLE IF NOT EXISTS scheduler.job_history (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    kind text NOT NULL,
    state text NOT NULL CHECK (state IN ('succeeded', 'failed', 'canceled', 'timed_out')),
    dedupe_key text NOT NULL,
    attempts integer NOT NULL,
    result jsonb,
    error jsonb,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    started_at timestamptz,
    completed_at timestamptz NOT NULL,
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

-- Execution environments of the functions that read a queue. Global. Operational: swept when stopped and idle.
CREATE TABLE IF NOT EXISTS scheduler.workers (
    id uuid PRIMARY KEY,
    function text NOT NULL CHECK (length(function) BETWEEN 1 AND 200),
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'draining', 'stopped')),
    active_count integer NOT NULL DEFAULT 0 CHECK (active_count >= 0),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at timestamptz
);

ALTER TABLE scheduler.jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.jobs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.jobs;
CREATE POLICY tenant ON scheduler.jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.estate_run_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.estate_run_queue FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.estate_run_queue;
CREATE POLICY tenant ON scheduler.estate_run_queue
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.policy_run_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.policy_run_jobs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.policy_run_jobs;
CREATE POLICY tenant ON scheduler.policy_run_jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.jobs, scheduler.estate_run_queue, scheduler.policy_run_jobs
    TO evalward_app;

ALTER TABLE scheduler.schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.schedules FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.schedules;
CREATE POLICY tenant ON scheduler.schedules
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.runs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.runs;
CREATE POLICY tenant ON scheduler.runs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.graph_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.graph_jobs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.graph_jobs;
CREATE POLICY tenant ON scheduler.graph_jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.failure_signatures ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.failure_signatures FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.failure_signatures;
CREATE POLICY tenant ON scheduler.failure_signatures
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.triggers ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.triggers FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.triggers;
CREATE POLICY tenant ON scheduler.triggers
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.job_history ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.job_history FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON scheduler.job_history;
CREATE POLICY tenant ON scheduler.job_history
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.schedules, scheduler.runs, scheduler.graph_jobs,
    scheduler.failure_signatures, scheduler.triggers, scheduler.job_history, scheduler.workers TO evalward_app;
