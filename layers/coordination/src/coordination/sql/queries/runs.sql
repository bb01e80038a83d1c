-- name: count_runs
-- Stored runs of a project, whatever their state. Lock: the caller holds the advisory lock of the project's quota.
SELECT count(*) AS runs FROM evals.runs WHERE tenant_id = %(tenant)s::text;

-- name: insert_run
-- Insert a pending run; returns what only the database knows. config: RunConfig; config_sha256: 64 hex digits. No lock.
INSERT INTO evals.runs (tenant_id, id, name, dataset_name, dataset_version, config, config_sha256, records_total, created_by)
VALUES (%(tenant)s::text, %(id)s::uuid, %(name)s::text, %(dataset_name)s::text, %(dataset_version)s::integer,
        %(config)s::jsonb, %(config_sha256)s::text, %(records_total)s::integer, %(created_by)s::text)
RETURNING created_at;

-- name: insert_run_labels
-- Insert the labels of a new run. keys, values: in the same order. No lock.
INSERT INTO evals.run_labels (tenant_id, run_id, key, value)
SELECT %(tenant)s::text, %(run_id)s::uuid, l.key, l.value
FROM unnest(%(keys)s::text[], %(values)s::text[]) AS l (key, value);

-- name: insert_run_snapshot
-- Pin the records that a run evaluates. bytes: of the object. No lock.
INSERT INTO evals.run_snapshots (tenant_id, run_id, sha256, path, records, bytes)
VALUES (%(tenant)s::text, %(run_id)s::uuid, %(sha256)s::text, %(path)s::text, %(records)s::integer, %(bytes)s::bigint);

-- name: insert_dispatch
-- Queue a run for dispatch. No lock.
INSERT INTO scheduler.estate_run_queue (tenant_id, id) VALUES (%(tenant)s::text, %(run_id)s::uuid);

-- name: find_run
-- One run with its labels, its snapshot and its gates. No lock.
SELECT r.tenant_id, r.id, r.name, r.state, r.dataset_name, r.dataset_version, s.sha256, r.config, r.config_sha256,
       r.records_total, r.records_done, r.results_scored, r.results_skipped, r.results_errors,
       r.report -> 'gates' AS gates, r.error, r.created_at, r.created_by, r.started_at, r.finished_at,
       coalesce((SELECT jsonb_object_agg(l.key, l.value) FROM evals.run_labels l
                 WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id), '{}'::jsonb) AS labels
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(id)s::uuid;

-- name: read_run_state
-- The state of one run. No lock.
SELECT state FROM evals.runs WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid;

-- name: list_runs
-- Runs, newest first. state, label_key + label_value, created_after: or NULL for all; after_*: position of the page
-- before, or NULL. No lock.
SELECT r.tenant_id, r.id, r.name, r.state, r.dataset_name, r.dataset_version, s.sha256, r.config, r.config_sha256,
       r.records_total, r.records_done, r.results_scored, r.results_skipped, r.results_errors,
       r.report -> 'gates' AS gates, r.error, r.created_at, r.created_by, r.started_at, r.finished_at,
       coalesce((SELECT jsonb_object_agg(l.key, l.value) FROM evals.run_labels l
                 WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id), '{}'::jsonb) AS labels
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text
  AND (%(state)s::text IS NULL OR r.state = %(state)s::text)
  AND (%(label_key)s::text IS NULL OR EXISTS (
        SELECT 1 FROM evals.run_labels l
        WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id AND l.key = %(label_key)s::text
          AND l.value = %(label_value)s::text))
  AND (%(created_after)s::timestamptz IS NULL OR r.created_at > %(created_after)s::timestamptz)
  AND (%(after_created_at)s::timestamptz IS NULL
       OR (r.created_at, r.id) < (%(after_created_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY r.created_at DESC, r.id DESC
LIMIT %(limit)s::integer;

-- name: list_results
-- Results of a run in the order of its records. evaluator, status: or NULL for all; after_*: position of the page
-- before, or NULL. The cost does not depend on the size of the run. No lock.
SELECT record_no, trial, evaluator, record, status, score, passed, error
FROM evals.run_results
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid
  AND (%(evaluator)s::text IS NULL OR evaluator = %(evaluator)s::text)
  AND (%(status)s::text IS NULL OR status = %(status)s::text)
  AND (%(after_record_no)s::integer IS NULL
       OR (record_no, trial, evaluator)
          > (%(after_record_no)s::integer, %(after_trial)s::smallint, %(after_evaluator)s::text))
ORDER BY record_no, trial, evaluator
LIMIT %(limit)s::integer;

-- name: read_report
-- State and report of one run. No lock.
SELECT state, report FROM evals.runs WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid;
