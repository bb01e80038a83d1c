-- Runs, what they evaluate and what came out.
SET LOCAL lock_timeout = '5s';

CREATE TABLE evals.runs (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'error', 'cancelled')),
    dataset_name text NOT NULL,
    dataset_version integer NOT NULL,
    config jsonb NOT NULL,
    config_sha256 text NOT NULL CHECK (config_sha256 ~ '^[0-9a-f]{64}$'),
    records_total integer NOT NULL CHECK (records_total > 0),
    records_done integer NOT NULL DEFAULT 0,
    shards_total integer,
    shards_done integer NOT NULL DEFAULT 0,
    results_scored integer NOT NULL DEFAULT 0,
    results_skipped integer NOT NULL DEFAULT 0,
    results_errors integer NOT NULL DEFAULT 0,
    input_tokens bigint,
    output_tokens bigint,
    cost_usd double precision,
    report jsonb,
    error jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    CHECK (records_done <= records_total),
    CHECK (shards_done <= shards_total),
    CHECK ((finished_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'error', 'cancelled')))
);
CREATE INDEX runs_by_age ON evals.runs (tenant_id, created_at DESC, id DESC);
CREATE INDEX runs_by_state ON evals.runs (tenant_id, state, created_at DESC, id DESC);

CREATE TABLE evals.run_labels (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 100),
    value text NOT NULL CHECK (length(value) <= 200),
    PRIMARY KEY (tenant_id, run_id, key),
    FOREIGN KEY (tenant_id, run_id) REFERENCES evals.runs (tenant_id, id)
);
CREATE INDEX run_labels_by_value ON evals.run_labels (tenant_id, key, value, run_id);

CREATE TABLE evals.run_snapshots (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    path text NOT NULL,
    records integer NOT NULL CHECK (records > 0),
    bytes bigint NOT NULL CHECK (bytes > 0),
    PRIMARY KEY (tenant_id, run_id),
    FOREIGN KEY (tenant_id, run_id) REFERENCES evals.runs (tenant_id, id)
);
CREATE INDEX run_snapshots_by_sha256 ON evals.run_snapshots (tenant_id, sha256);

-- No foreign key to runs: the trigger it brings costs one look-up a row, 300,000 for a run of 100,000 records. The
-- transaction that writes results updates the run's counts, so it cannot commit for a run that is gone.
CREATE TABLE evals.run_results (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    record_no integer NOT NULL CHECK (record_no >= 0),
    trial smallint NOT NULL CHECK (trial >= 1),
    evaluator text NOT NULL,
    record text NOT NULL,
    status text NOT NULL CHECK (status IN ('scored', 'skipped', 'error')),
    score double precision,
    passed boolean,
    error text,
    PRIMARY KEY (tenant_id, run_id, record_no, trial, evaluator),
    CHECK ((status = 'scored') = (score IS NOT NULL))
);

ALTER TABLE evals.runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.runs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.run_labels ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_labels FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_labels
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.run_snapshots ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_snapshots FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_snapshots
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.run_results ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_results FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_results
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.runs, evals.run_labels, evals.run_snapshots, evals.run_results
    TO evalward_app;
