-- Reports by the values of metadata keys.
SET LOCAL lock_timeout = '5s';

ALTER TABLE evals.runs ADD COLUMN slices text[] NOT NULL DEFAULT '{}';

-- The value that a record of a run has under a metadata key that the run is sliced by. Written before the results of the
-- record's shard. No foreign key to runs, as for evals.run_results.
CREATE TABLE evals.run_slices (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 100),
    record_no integer NOT NULL CHECK (record_no >= 0),
    value text NOT NULL CHECK (length(value) <= 1000),
    PRIMARY KEY (tenant_id, run_id, key, record_no)
);

ALTER TABLE evals.run_slices ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_slices FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_slices
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_slices TO evalward_app;
