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

-- name: read_dispatch
-- What planning needs to know of a run; no row when it is gone. No lock.
SELECT r.state, s.path, s.sha256, s.records, p.paused
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
JOIN coordination.projects p ON p.id = r.tenant_id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid;

-- name: start_run
-- pending -> running with a known number of shards; no row comes back when the run is in another state. Lock: its row.
UPDATE evals.runs
SET state = 'running', started_at = clock_timestamp(), shards_total = %(shards_total)s::integer
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state = 'pending'
RETURNING id;

-- name: acknowledge_dispatch
-- Note that a run's dispatch was taken up. Lock: its row.
UPDATE scheduler.estate_run_queue
SET acknowledged_at = coalesce(acknowledged_at, clock_timestamp())
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid;

-- name: complete_dispatch
-- Note how a dispatched run ended. outcome: the run's terminal state. Lock: its row.
UPDATE scheduler.estate_run_queue
SET acknowledged_at = coalesce(acknowledged_at, clock_timestamp()), completed_at = clock_timestamp(),
    outcome = %(outcome)s::text
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND completed_at IS NULL;

-- name: insert_shards
-- The shards of a run in one statement; arrays in the order of shard_no, byte ranges [start, end). No lock.
INSERT INTO scheduler.policy_run_jobs (tenant_id, id, run_id, shard_no, first_record, records, byte_start, byte_end)
SELECT %(tenant)s::text, s.id, %(run_id)s::uuid, s.shard_no, s.first_record, s.records, s.byte_start, s.byte_end
FROM unnest(%(ids)s::uuid[], %(shard_nos)s::integer[], %(first_records)s::integer[], %(records)s::integer[],
            %(byte_starts)s::bigint[], %(byte_ends)s::bigint[])
     AS s (id, shard_no, first_record, records, byte_start, byte_end);

-- name: begin_shard
-- Begin an attempt at a shard of a running run; no row comes back when there is nothing to do. Lock: its row.
UPDATE scheduler.policy_run_jobs j
SET state = 'running', attempts = j.attempts + 1, updated_at = clock_timestamp()
FROM evals.runs r, evals.run_snapshots s
WHERE j.tenant_id = %(tenant)s::text AND j.id = %(shard_id)s::uuid AND j.state IN ('queued', 'running')
  AND r.tenant_id = j.tenant_id AND r.id = j.run_id AND r.state = 'running'
  AND s.tenant_id = j.tenant_id AND s.run_id = j.run_id
RETURNING j.run_id, j.shard_no, j.first_record, j.records, j.byte_start, j.byte_end, j.attempts, r.config, s.path;

-- name: insert_results
-- At most 1000 results in one statement; arrays in the same order. No lock.
INSERT INTO evals.run_results (tenant_id, run_id, record_no, trial, evaluator, record, status, score, passed, error)
SELECT %(tenant)s::text, %(run_id)s::uuid, x.record_no, 1, x.evaluator, x.record, x.status, x.score, x.passed, x.error
FROM unnest(%(record_nos)s::integer[], %(evaluators)s::text[], %(records)s::text[], %(statuses)s::text[],
            %(scores)s::double precision[], %(passed)s::boolean[], %(errors)s::text[])
     AS x (record_no, evaluator, record, status, score, passed, error);

-- name: complete_shard
-- running -> completed; no row comes back when the shard is in another state. Lock: its row.
UPDATE scheduler.policy_run_jobs
SET state = 'completed', error = NULL, completed_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(shard_id)s::uuid AND state = 'running'
RETURNING id;

-- name: count_shard
-- Add a completed shard to its run, which must be running. Sums of tokens (count) and cost (USD) or NULL. Last before
-- the commit: shards of one run wait for each other here. Lock: the run's row.
UPDATE evals.runs
SET shards_done = shards_done + 1,
    records_done = records_done + %(records)s::integer,
    results_scored = results_scored + %(scored)s::integer,
    results_skipped = results_skipped + %(skipped)s::integer,
    results_errors = results_errors + %(errors)s::integer,
    input_tokens = CASE WHEN %(input_tokens)s::bigint IS NULL THEN input_tokens
                        ELSE coalesce(input_tokens, 0) + %(input_tokens)s::bigint END,
    output_tokens = CASE WHEN %(output_tokens)s::bigint IS NULL THEN output_tokens
                         ELSE coalesce(output_tokens, 0) + %(output_tokens)s::bigint END,
    cost_usd = CASE WHEN %(cost_usd)s::double precision IS NULL THEN cost_usd
                    ELSE coalesce(cost_usd, 0) + %(cost_usd)s::double precision END
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state = 'running'
RETURNING shards_done, shards_total, results_errors;

-- name: read_finished_run
-- A running run whose shards are all done, for its report; no row otherwise. Lock: its row.
SELECT r.id, r.name, r.config, r.config_sha256, r.records_total, r.input_tokens, r.output_tokens, r.cost_usd,
       r.created_at, r.started_at, s.sha256, clock_timestamp() AS finished_at
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid AND r.state = 'running'
  AND r.shards_done = r.shards_total
FOR UPDATE OF r;

-- name: aggregate_results
-- What the results of a run add up to, per evaluator. deviations: sum of squared deviations of the scores from their
-- mean. Reads all results of the run. No lock.
SELECT evaluator, count(score) AS scored, avg(score) AS mean, regr_sxx(score, score) AS deviations,
       count(*) FILTER (WHERE status = 'skipped') AS skipped, count(*) FILTER (WHERE status = 'error') AS errors
FROM evals.run_results
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid
GROUP BY evaluator;

-- name: finish_run
-- running -> succeeded or failed with its report. finished_at: as in the report. Lock: its row.
UPDATE evals.runs
SET state = %(state)s::text, report = %(report)s::jsonb, finished_at = %(finished_at)s::timestamptz
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state = 'running'
RETURNING id;

-- name: stop_run
-- pending or running -> error, with the reason (RunFailure). Lock: its row.
UPDATE evals.runs
SET state = 'error', error = %(error)s::jsonb, finished_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state IN ('pending', 'running')
RETURNING id;

-- name: cancel_open_shards
-- Cancel what is left of a stopped run and say which. Lock: the rows.
UPDATE scheduler.policy_run_jobs
SET state = 'cancelled', updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid AND state IN ('queued', 'running')
RETURNING id;

-- name: fail_shard
-- Give a shard up. error: for people. Lock: its row.
UPDATE scheduler.policy_run_jobs
SET state = 'failed', error = %(error)s::text, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(shard_id)s::uuid AND state IN ('queued', 'running');
