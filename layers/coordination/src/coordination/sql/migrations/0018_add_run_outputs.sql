-- What the target of a run answered.
SET LOCAL lock_timeout = '5s';

-- One answer of a target; a run whose records carry their outputs has none. Written before or with the results of its
-- record and trial: while it is here, its target is not asked again. No foreign key to runs, as for evals.run_results.
CREATE TABLE evals.run_outputs (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    record_no integer NOT NULL CHECK (record_no >= 0),
    trial smallint NOT NULL CHECK (trial >= 1),
    record text NOT NULL,
    output json,
    latency_ms double precision CHECK (latency_ms >= 0),
    input_tokens bigint CHECK (input_tokens >= 0),
    output_tokens bigint CHECK (output_tokens >= 0),
    cost_usd double precision CHECK (cost_usd >= 0),
    error text,
    attempts smallint NOT NULL CHECK (attempts >= 1),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, run_id, record_no, trial),
    CHECK ((output IS NULL) = (error IS NOT NULL))
);

ALTER TABLE evals.run_outputs ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_outputs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_outputs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_outputs TO evalward_app;
