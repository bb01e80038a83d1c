-- name: count_runs
-- Stored runs of a project, whatever their state. Lock: the caller holds the advisory lock of the project's quota.
SELECT count(*) AS runs FROM evals.runs WHERE tenant_id = %(tenant)s::text;

-- name: insert_run
-- Insert a pending run; returns what only the database knows. config: RunConfig; config_sha256: 64 hex digits; slices:
-- metadata keys. No lock.
INSERT INTO evals.runs (tenant_id, id, name, dataset_name, dataset_version, config, config_sha256, records_total, created_by,
                        slices)
VALUES (%(tenant)s::text, %(id)s::uuid, %(name)s::text, %(dataset_name)s::text, %(dataset_version)s::integer,
        %(config)s::jsonb, %(config_sha256)s::text, %(records_total)s::integer, %(created_by)s::text, %(slices)s::text[])
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
       r.source_id, r.window_start, r.window_end, r.slices,
       coalesce((SELECT jsonb_object_agg(l.key, l.value) FROM evals.run_labels l
                 WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id), '{}'::jsonb) AS labels,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'config', k.config, 'state', k.state, 'attempts', k.attempts, 'error', k.error,
                   'external_id', k.external_id, 'completed_at', k.completed_at) ORDER BY k.sink_no), '[]'::jsonb)
        FROM evals.run_sinks k WHERE k.tenant_id = r.tenant_id AND k.run_id = r.id) AS sinks
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(id)s::uuid;

-- name: read_run_state
-- The state of one run. No lock.
SELECT state FROM evals.runs WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid;

-- name: list_runs
-- Runs, newest first. state, label_key + label_value, source, created_after: or NULL for all; after_*: position of the page
-- before, or NULL. No lock.
SELECT r.tenant_id, r.id, r.name, r.state, r.dataset_name, r.dataset_version, s.sha256, r.config, r.config_sha256,
       r.records_total, r.records_done, r.results_scored, r.results_skipped, r.results_errors,
       r.report -> 'gates' AS gates, r.error, r.created_at, r.created_by, r.started_at, r.finished_at,
       r.source_id, r.window_start, r.window_end, r.slices,
       coalesce((SELECT jsonb_object_agg(l.key, l.value) FROM evals.run_labels l
                 WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id), '{}'::jsonb) AS labels,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'config', k.config, 'state', k.state, 'attempts', k.attempts, 'error', k.error,
                   'external_id', k.external_id, 'completed_at', k.completed_at) ORDER BY k.sink_no), '[]'::jsonb)
        FROM evals.run_sinks k WHERE k.tenant_id = r.tenant_id AND k.run_id = r.id) AS sinks
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text
  AND (%(state)s::text IS NULL OR r.state = %(state)s::text)
  AND (%(label_key)s::text IS NULL OR EXISTS (
        SELECT 1 FROM evals.run_labels l
        WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id AND l.key = %(label_key)s::text
          AND l.value = %(label_value)s::text))
  AND (%(source)s::text IS NULL OR r.source_id = %(source)s::text)
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

-- name: list_outputs
-- Outputs of a run's target in the order of its records, as many as have max_bytes of JSON together, one at least.
-- after_*: position of the page before, or NULL; limit: rows at most; fetched: rows there were within the limit. No lock.
SELECT p.record_no, p.trial, p.record, p.output, p.latency_ms, p.input_tokens, p.output_tokens, p.cost_usd, p.error,
       p.attempts, p.created_at, p.fetched
FROM (
    SELECT o.record_no, o.trial, o.record, o.output, o.latency_ms, o.input_tokens, o.output_tokens, o.cost_usd, o.error,
           o.attempts, o.created_at, count(*) OVER () AS fetched,
           row_number() OVER (ORDER BY o.record_no, o.trial) AS place,
           sum(octet_length(coalesce(o.output, ''))) OVER (ORDER BY o.record_no, o.trial) AS running_bytes
    FROM (
        SELECT r.record_no, r.trial, r.record, r.output::text AS output, r.latency_ms, r.input_tokens, r.output_tokens,
               r.cost_usd, r.error, r.attempts, r.created_at
        FROM evals.run_outputs r
        WHERE r.tenant_id = %(tenant)s::text AND r.run_id = %(run_id)s::uuid
          AND (%(after_record_no)s::integer IS NULL
               OR (r.record_no, r.trial) > (%(after_record_no)s::integer, %(after_trial)s::smallint))
        ORDER BY r.record_no, r.trial
        LIMIT %(limit)s::integer
    ) AS o
) AS p
WHERE p.place = 1 OR p.running_bytes <= %(max_bytes)s::bigint
ORDER BY p.record_no, p.trial;

-- name: read_report
-- State and report of one run. No lock.
SELECT state, report FROM evals.runs WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid;

-- name: read_worst_records
-- Which records a run's report calls the worst, and where they lie; no row without a report. path: key of the canonical
-- object; target: kind of the run's target; is_listed: whether the dataset can still be read by its sha256. No lock.
SELECT r.report -> 'worst' AS worst, r.config #>> '{target,kind}' AS target, s.path, s.sha256,
       EXISTS (SELECT 1 FROM packs.packs p WHERE p.tenant_id = s.tenant_id AND p.sha256 = s.sha256) AS is_listed
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid AND r.report IS NOT NULL;

-- name: list_output_beginnings
-- How some outputs of a run's target begin: a text as it is, everything else as JSON. record_nos, trials: which, in the
-- same order; characters: at most of each. Outputs that failed are left out. No lock.
SELECT o.record_no, o.trial, json_typeof(o.output) = 'string' AS is_text,
       left(CASE json_typeof(o.output) WHEN 'string' THEN o.output #>> '{}' ELSE o.output::text END,
            %(characters)s::integer) AS beginning
FROM unnest(%(record_nos)s::integer[], %(trials)s::smallint[]) AS w (record_no, trial)
JOIN evals.run_outputs o ON o.record_no = w.record_no AND o.trial = w.trial
WHERE o.tenant_id = %(tenant)s::text AND o.run_id = %(run_id)s::uuid AND o.output IS NOT NULL;

-- name: read_dispatch
-- What planning needs to know of a run; no row when it is gone. shards_total: NULL until it was planned once. No lock.
SELECT r.state, r.config, r.shards_total, s.path, s.sha256, s.records, p.paused
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
JOIN coordination.projects p ON p.id = r.tenant_id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid;

-- name: start_run
-- pending -> running with a known number of shards; no row comes back when the run is in another state. A resumed run
-- keeps the time it was started first and the shards it has done. Lock: its row.
UPDATE evals.runs
SET state = 'running', started_at = coalesce(started_at, clock_timestamp()), shards_total = %(shards_total)s::integer
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state = 'pending'
RETURNING shards_done;

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
RETURNING j.run_id, j.shard_no, j.first_record, j.records, j.byte_start, j.byte_end, j.attempts, r.config, r.slices,
          s.path;

-- name: insert_results
-- At most 1000 results in one statement; arrays in the same order. No lock.
INSERT INTO evals.run_results (tenant_id, run_id, record_no, trial, evaluator, record, status, score, passed, error)
SELECT %(tenant)s::text, %(run_id)s::uuid, x.record_no, x.trial, x.evaluator, x.record, x.status, x.score, x.passed,
       x.error
FROM unnest(%(record_nos)s::integer[], %(trials)s::smallint[], %(evaluators)s::text[], %(records)s::text[],
            %(statuses)s::text[], %(scores)s::double precision[], %(passed)s::boolean[], %(errors)s::text[])
     AS x (record_no, trial, evaluator, record, status, score, passed, error);

-- name: insert_outputs
-- At most 1000 outputs of a target in one statement; arrays in the same order. outputs: JSON texts, NULL with an error;
-- latencies: milliseconds; costs: US dollars. No lock.
INSERT INTO evals.run_outputs (tenant_id, run_id, record_no, trial, record, output, latency_ms, input_tokens,
                               output_tokens, cost_usd, error, attempts)
SELECT %(tenant)s::text, %(run_id)s::uuid, x.record_no, x.trial, x.record, x.output::json, x.latency_ms, x.input_tokens,
       x.output_tokens, x.cost_usd, x.error, x.attempts
FROM unnest(%(record_nos)s::integer[], %(trials)s::smallint[], %(records)s::text[], %(outputs)s::text[],
            %(latencies)s::double precision[], %(input_tokens)s::bigint[], %(output_tokens)s::bigint[],
            %(costs)s::double precision[], %(errors)s::text[], %(attempts)s::smallint[])
     AS x (record_no, trial, record, output, latency_ms, input_tokens, output_tokens, cost_usd, error, attempts);

-- name: list_judged_trials
-- Which trials of a shard's records have their results; those of one record and trial are written together, so one
-- evaluator tells of all. evaluator: any of the run; first_record, records: the shard. No lock.
SELECT record_no, trial
FROM evals.run_results
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid AND evaluator = %(evaluator)s::text
  AND record_no >= %(first_record)s::integer AND record_no < %(first_record)s::integer + %(records)s::integer;

-- name: list_unjudged_outputs
-- Outputs of a shard's records that have no results yet: their targets are not asked again. first_record, records: the
-- shard. No lock.
SELECT o.record_no, o.trial, o.output::text AS output, o.latency_ms, o.input_tokens, o.output_tokens, o.cost_usd, o.error
FROM evals.run_outputs o
WHERE o.tenant_id = %(tenant)s::text AND o.run_id = %(run_id)s::uuid
  AND o.record_no >= %(first_record)s::integer AND o.record_no < %(first_record)s::integer + %(records)s::integer
  AND NOT EXISTS (SELECT 1 FROM evals.run_results r
                  WHERE r.tenant_id = o.tenant_id AND r.run_id = o.run_id AND r.record_no = o.record_no
                    AND r.trial = o.trial);

-- name: summarize_latencies
-- How long a run's target took for its outputs, in milliseconds; NULLs when it has none. Reads all outputs of the run.
-- No lock.
SELECT count(latency_ms) AS outputs, avg(latency_ms) AS mean,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY latency_ms) AS p95, max(latency_ms) AS max
FROM evals.run_outputs
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid AND error IS NULL;

-- name: complete_shard
-- running -> completed; no row comes back when the shard is in another state. Lock: its row.
UPDATE scheduler.policy_run_jobs
SET state = 'completed', error = NULL, completed_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(shard_id)s::uuid AND state = 'running'
RETURNING id;

-- name: note_shard_progress
-- Note that a shard which writes in batches has got further: its attempts without progress count from this one. No row
-- comes back when it is not running any more. Lock: its row.
UPDATE scheduler.policy_run_jobs
SET attempts = 1, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(shard_id)s::uuid AND state = 'running'
RETURNING id;

-- name: requeue_shard
-- running -> queued: the rest of a shard is for the next invocation. has_progress: whether this attempt got further and
-- so does not count. No row comes back when the shard is in another state. Lock: its row.
UPDATE scheduler.policy_run_jobs
SET state = 'queued', attempts = CASE WHEN %(has_progress)s::boolean THEN 0 ELSE attempts END,
    updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(shard_id)s::uuid AND state = 'running'
RETURNING id;

-- name: count_shard
-- Add what a shard got done to its run, which must be running. shards: 1 when that completes it, else 0. Sums of tokens
-- (count) and cost (USD) or NULL. Last before the commit: shards of one run wait for each other here. Lock: the run's
-- row.
UPDATE evals.runs
SET shards_done = shards_done + %(shards)s::integer,
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
SELECT r.id, r.name, r.config, r.config_sha256, r.slices, r.records_total, r.input_tokens, r.output_tokens, r.cost_usd,
       r.created_at, r.started_at, r.dataset_name, r.dataset_version, r.source_id, r.window_start, r.window_end, s.sha256,
       s.redactions, s.excluded_trace_ids, clock_timestamp() AS finished_at
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid AND r.state = 'running'
  AND r.shards_done = r.shards_total
FOR UPDATE OF r;

-- name: aggregate_results
-- What the results of a run add up to, per evaluator. deviations: sum of squared deviations of the scores from their
-- mean. Reads all results of the run. No lock.
SELECT evaluator, count(score) AS scored, avg(score) AS mean, regr_sxx(score, score) AS deviations,
       min(score) AS lowest, max(score) AS highest,
       count(*) FILTER (WHERE passed) AS passed, count(*) FILTER (WHERE NOT passed) AS failed,
       count(*) FILTER (WHERE status = 'skipped') AS skipped, count(*) FILTER (WHERE status = 'error') AS errors
FROM evals.run_results
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid
GROUP BY evaluator;

-- name: count_scores_by_bin
-- Histograms of the scores of some evaluators, empty bins left out. evaluators, lows, highs: in the same order, low <
-- high, no score outside; bins: how many of the same width. Reads all results of the run. No lock.
SELECT r.evaluator, least(width_bucket(r.score, e.low, e.high, %(bins)s::integer), %(bins)s::integer) AS bin,
       count(*) AS scores
FROM evals.run_results r
JOIN unnest(%(evaluators)s::text[], %(lows)s::double precision[], %(highs)s::double precision[])
     AS e (evaluator, low, high) ON e.evaluator = r.evaluator
WHERE r.tenant_id = %(tenant)s::text AND r.run_id = %(run_id)s::uuid AND r.score IS NOT NULL
GROUP BY r.evaluator, bin;

-- name: list_worst_results
-- The worst results of each evaluator: errors, then what failed, then the worst scores of what neither passes nor fails.
-- evaluators, signs, bests: in the same order; sign 1 where higher scores are better, -1 where lower ones are, 0 where
-- neither is; best: a score that cannot be beaten and so is none of the worst, or NULL. limit: results of each evaluator.
-- Reads all results of the run once an evaluator, keeping the worst in memory: one sort of all results spills to disk and
-- takes twice as long for three evaluators. No lock.
SELECT e.evaluator, w.record, w.record_no, w.trial, w.status, w.score, w.passed, w.error
FROM unnest(%(evaluators)s::text[], %(signs)s::integer[], %(bests)s::double precision[])
     WITH ORDINALITY AS e (evaluator, sign, best, place)
CROSS JOIN LATERAL (
    SELECT r.record, r.record_no, r.trial, r.status, r.score, r.passed, r.error
    FROM evals.run_results r
    WHERE r.tenant_id = %(tenant)s::text AND r.run_id = %(run_id)s::uuid AND r.evaluator = e.evaluator
      AND (r.status = 'error' OR NOT r.passed
           OR (r.status = 'scored' AND r.passed IS NULL AND e.sign <> 0 AND r.score IS DISTINCT FROM e.best))
    ORDER BY r.status = 'error' DESC, r.score * e.sign, r.record_no, r.trial
    LIMIT %(limit)s::integer
) AS w
ORDER BY e.place, w.status = 'error' DESC, w.score * e.sign, w.record_no, w.trial;

-- name: finish_run
-- running -> succeeded or failed with its report. finished_at: as in the report. Lock: its row.
UPDATE evals.runs
SET state = %(state)s::text, report = %(report)s::jsonb, finished_at = %(finished_at)s::timestamptz
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state = 'running'
RETURNING id;

-- name: end_open_run
-- pending or running -> error or cancelled; no row comes back when the run has ended. error: the reason (RunFailure), or
-- NULL. Lock: its row.
UPDATE evals.runs
SET state = %(state)s::text, error = %(error)s::jsonb, finished_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state IN ('pending', 'running')
RETURNING id;

-- name: cancel_open_shards
-- Cancel what is left of a run that ended and say which. A shard whose worker is just writing is passed over: that worker
-- waits for the run's row, which the caller holds, and cancels the shard itself when it sees that the run has ended.
-- Lock: the rows, skipping locked ones.
WITH open AS MATERIALIZED (
    SELECT j.tenant_id, j.id
    FROM scheduler.policy_run_jobs j
    WHERE j.tenant_id = %(tenant)s::text AND j.run_id = %(run_id)s::uuid AND j.state IN ('queued', 'running')
    FOR UPDATE SKIP LOCKED
)
UPDATE scheduler.policy_run_jobs j
SET state = 'cancelled', updated_at = clock_timestamp()
FROM open
WHERE j.tenant_id = open.tenant_id AND j.id = open.id
RETURNING j.id;

-- name: cancel_shard_of_ended_run
-- Cancel one open shard whose run is not running any more, or is gone. Lock: its row.
UPDATE scheduler.policy_run_jobs j
SET state = 'cancelled', updated_at = clock_timestamp()
WHERE j.tenant_id = %(tenant)s::text AND j.id = %(shard_id)s::uuid AND j.state IN ('queued', 'running')
  AND NOT EXISTS (SELECT 1 FROM evals.runs r
                  WHERE r.tenant_id = j.tenant_id AND r.id = j.run_id AND r.state = 'running');

-- name: fail_shard
-- Give a shard up. error: for people. Lock: its row.
UPDATE scheduler.policy_run_jobs
SET state = 'failed', error = %(error)s::text, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(shard_id)s::uuid AND state IN ('queued', 'running');

-- name: lock_run_to_change
-- One run that is about to change: keeps deletion, cancellation, resumption and labelling of one run apart. max_errors:
-- of its config, NULL for no limit. Lock: its row, until the transaction ends.
SELECT state, results_errors, (config ->> 'max_errors')::integer AS max_errors
FROM evals.runs
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid
FOR NO KEY UPDATE;

-- name: reopen_run
-- error or cancelled -> pending; counts and results stay. No row comes back when the run is in another state. Lock: its
-- row.
UPDATE evals.runs
SET state = 'pending', error = NULL, report = NULL, finished_at = NULL
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid AND state IN ('error', 'cancelled')
RETURNING id;

-- name: reopen_dispatch
-- Queue a resumed run for dispatch again; its row may have been swept. Lock: its row.
INSERT INTO scheduler.estate_run_queue (tenant_id, id) VALUES (%(tenant)s::text, %(run_id)s::uuid)
ON CONFLICT (tenant_id, id) DO UPDATE
SET queued_at = clock_timestamp(), acknowledged_at = NULL, completed_at = NULL, outcome = NULL;

-- name: list_evaluated_shards
-- Of these shards, those that have all their results. first_records: numbers in the snapshot; records: how many follow,
-- in the same order; results_each: results of one record. Reads all results of the run. No lock.
SELECT f.first_record
FROM unnest(%(first_records)s::integer[], %(records)s::integer[]) AS f (first_record, records)
WHERE (SELECT count(*) FROM evals.run_results r
       WHERE r.tenant_id = %(tenant)s::text AND r.run_id = %(run_id)s::uuid
         AND r.record_no >= f.first_record AND r.record_no < f.first_record + f.records)
      = f.records::bigint * %(results_each)s::integer;

-- name: delete_unfinished_shards
-- Take away the shards that a resumed run plans anew: whoever still works on one can no longer complete it. Lock: the
-- rows, before the run's.
DELETE FROM scheduler.policy_run_jobs
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid AND state <> 'completed';

-- name: read_run_labels
-- The labels of one run as an object. In a statement of its own after the run's row is locked, so that it sees what the
-- transaction before us committed. No lock.
SELECT coalesce(jsonb_object_agg(key, value), '{}'::jsonb) AS labels
FROM evals.run_labels
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: set_run_labels
-- Add labels to a run, or give them another value. keys, values: in the same order. Lock: the labels' rows; the caller
-- holds the run's.
INSERT INTO evals.run_labels (tenant_id, run_id, key, value)
SELECT %(tenant)s::text, %(run_id)s::uuid, l.key, l.value
FROM unnest(%(keys)s::text[], %(values)s::text[]) AS l (key, value)
ON CONFLICT (tenant_id, run_id, key) DO UPDATE SET value = excluded.value;

-- name: remove_run_labels
-- Take labels off a run. Lock: the labels' rows; the caller holds the run's.
DELETE FROM evals.run_labels
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid AND key = ANY(%(keys)s::text[]);

-- name: lock_run_leases
-- The leases of a run and of its shards. Whoever works on the run locks a lease before it writes, so while these rows are
-- ours nobody writes. Lock: the leases' rows in the order of their names, before the run's.
SELECT l.name, coalesce(l.expires_at > clock_timestamp(), false) AS is_live
FROM coordination.leases l
WHERE l.name = ANY(ARRAY(
    SELECT 'shard:' || j.tenant_id || ':' || j.id
    FROM scheduler.policy_run_jobs j
    WHERE j.tenant_id = %(tenant)s::text AND j.run_id = %(run_id)s::uuid
    UNION ALL
    SELECT w.kind || ':' || %(tenant)s::text || ':' || %(run_id)s::uuid
    FROM unnest(ARRAY['run', 'finish']) AS w (kind)))
ORDER BY l.name
FOR UPDATE;

-- name: lock_run_to_delete
-- One run that is about to be deleted. ended_seconds_ago: since it finished, else since it was created. Lock: its row,
-- until the transaction ends.
SELECT state, extract(epoch FROM clock_timestamp() - coalesce(finished_at, created_at))::double precision
       AS ended_seconds_ago
FROM evals.runs
WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid
FOR UPDATE;

-- name: delete_leases
-- Delete leases that nobody holds any more. names: of rows that the caller has locked. Lock: the rows.
DELETE FROM coordination.leases WHERE name = ANY(%(names)s::text[]);

-- name: delete_run_wake_ups
-- Delete what still wakes somebody for a run or its shards. Lock: the rows.
DELETE FROM coordination.wake_ups w
WHERE w.project = %(tenant)s::text
  AND ((w.kind IN ('run', 'finish') AND w.ref_id = %(run_id)s::uuid::text)
       OR (w.kind = 'shard' AND w.ref_id = ANY(ARRAY(
               SELECT j.id::text FROM scheduler.policy_run_jobs j
               WHERE j.tenant_id = %(tenant)s::text AND j.run_id = %(run_id)s::uuid))));

-- name: delete_run_deliveries
-- Delete what webhooks were or are to be told of a run, cancel the open jobs and take back the wake-ups. Lock: the rows;
-- the caller holds the run's.
WITH gone AS (
    DELETE FROM evals.webhook_deliveries
    WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid
    RETURNING id
), canceled AS (
    UPDATE scheduler.jobs j
    SET state = 'canceled', completed_at = clock_timestamp()
    FROM gone
    WHERE j.tenant_id = %(tenant)s::text AND j.id = gone.id AND j.state IN ('queued', 'running')
)
DELETE FROM coordination.wake_ups w
USING gone
WHERE w.project = %(tenant)s::text AND w.kind = 'webhook' AND w.ref_id = gone.id::text;

-- name: delete_run_sinks
-- Delete the sinks of a run, cancel their open jobs and take back their wake-ups; what they exported stays. Lock: the
-- rows; the caller holds the run's.
WITH gone AS (
    DELETE FROM evals.run_sinks
    WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid
    RETURNING id
), canceled AS (
    UPDATE scheduler.jobs j
    SET state = 'canceled', completed_at = clock_timestamp()
    FROM gone
    WHERE j.tenant_id = %(tenant)s::text AND j.id = gone.id AND j.state IN ('queued', 'running')
)
DELETE FROM coordination.wake_ups w
USING gone
WHERE w.project = %(tenant)s::text AND w.kind = 'sink' AND w.ref_id = gone.id::text;

-- name: delete_run_shards
-- Delete the shards of a run. Lock: the rows; the caller holds the run's.
DELETE FROM scheduler.policy_run_jobs WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: delete_run_dispatch
-- Delete the dispatch of a run. Lock: its row; the caller holds the run's.
DELETE FROM scheduler.estate_run_queue WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid;

-- name: delete_run_results
-- Delete the results of a run. Lock: the rows; the caller holds the run's.
DELETE FROM evals.run_results WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: insert_slices
-- At most 1000 values of records under the keys that their run is sliced by; arrays in the same order; values: JSON texts.
-- What an attempt before has written stays. No lock.
INSERT INTO evals.run_slices (tenant_id, run_id, key, record_no, value)
SELECT %(tenant)s::text, %(run_id)s::uuid, x.key, x.record_no, x.value
FROM unnest(%(keys)s::text[], %(record_nos)s::integer[], %(values)s::text[]) AS x (key, record_no, value)
ON CONFLICT (tenant_id, run_id, key, record_no) DO NOTHING;

-- name: aggregate_slices
-- What the results of a run add up to, per metadata key, value and evaluator: the most frequent values of each key, most
-- records first. value: JSON text; records: that have it; limit: values of each key. Reads all results of the run once a
-- key. No lock.
WITH counted AS MATERIALIZED (
    SELECT s.key, s.value, count(*) AS records, row_number() OVER (PARTITION BY s.key ORDER BY count(*) DESC, s.value) AS place
    FROM evals.run_slices s
    WHERE s.tenant_id = %(tenant)s::text AND s.run_id = %(run_id)s::uuid
    GROUP BY s.key, s.value
)
SELECT c.key, c.value, c.records, r.evaluator, count(r.score) AS scored, avg(r.score) AS mean,
       regr_sxx(r.score, r.score) AS deviations, count(*) FILTER (WHERE r.passed) AS passed,
       count(*) FILTER (WHERE NOT r.passed) AS failed, count(*) FILTER (WHERE r.status = 'skipped') AS skipped,
       count(*) FILTER (WHERE r.status = 'error') AS errors
FROM counted c
JOIN evals.run_slices s
    ON s.tenant_id = %(tenant)s::text AND s.run_id = %(run_id)s::uuid AND s.key = c.key AND s.value = c.value
JOIN evals.run_results r
    ON r.tenant_id = %(tenant)s::text AND r.run_id = %(run_id)s::uuid AND r.record_no = s.record_no
WHERE c.place <= %(limit)s::integer
GROUP BY c.key, c.value, c.records, c.place, r.evaluator
ORDER BY c.key, c.place, r.evaluator;

-- name: delete_run_slices
-- Delete the values of a run's records. Lock: the rows; the caller holds the run's.
DELETE FROM evals.run_slices WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: delete_run_outputs
-- Delete the outputs of a run's target. Lock: the rows; the caller holds the run's.
DELETE FROM evals.run_outputs WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: delete_run_labels
-- Delete the labels of a run. Lock: the rows; the caller holds the run's.
DELETE FROM evals.run_labels WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: find_run_content
-- The content of a run's snapshot. No lock.
SELECT sha256 FROM evals.run_snapshots WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: queue_snapshot_removal
-- Have the objects of a source run's snapshot removed after the commit; those of a dataset are not the run's. Lock: none
-- that is not the caller's.
INSERT INTO coordination.wake_ups (queue, project, kind, ref_id)
SELECT 'pull', r.tenant_id, 'snapshot_removal', r.id::text
FROM evals.runs r
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid AND r.source_id IS NOT NULL
ON CONFLICT (project, kind, ref_id) DO NOTHING;

-- name: delete_run_snapshot
-- Let go of the records that a run evaluated. Lock: the row; the caller holds the run's.
DELETE FROM evals.run_snapshots WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;

-- name: delete_run
-- Delete a run whose labels and snapshot are gone. Lock: its row, which the caller holds.
DELETE FROM evals.runs WHERE tenant_id = %(tenant)s::text AND id = %(run_id)s::uuid;

-- name: insert_run_tombstone
-- Say that a run was deleted, for seconds from now (> 0). labels: as they were. No lock.
INSERT INTO evals.run_tombstones (tenant_id, run_id, labels, deleted_by, expires_at)
VALUES (%(tenant)s::text, %(run_id)s::uuid, %(labels)s::jsonb, %(deleted_by)s::text,
        clock_timestamp() + make_interval(secs => %(seconds)s::integer));

-- name: find_run_tombstone
-- The tombstone of a run that was deleted and has not been forgotten yet. No lock.
SELECT labels, deleted_by, deleted_at
FROM evals.run_tombstones
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid AND expires_at > clock_timestamp();

-- name: delete_expired_tombstones
-- Forget deletions whose time is over and say how many. limit: rows at most. Lock: the rows, skipping locked ones.
WITH expired AS MATERIALIZED (
    SELECT t.tenant_id, t.run_id
    FROM evals.run_tombstones t
    WHERE t.tenant_id = %(tenant)s::text AND t.expires_at <= clock_timestamp()
    ORDER BY t.expires_at
    LIMIT %(limit)s::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM evals.run_tombstones t
USING expired
WHERE t.tenant_id = expired.tenant_id AND t.run_id = expired.run_id
RETURNING t.run_id;

-- name: list_ended_runs
-- Ended runs, the longest ended first, that ended retention_seconds ago or earlier. is_kept: a label exempts it.
-- after_*: position of the page before, or NULL; limit: rows at most. No lock.
SELECT r.id, coalesce(r.finished_at, r.created_at) AS ended_at,
       EXISTS (SELECT 1 FROM evals.run_labels l
               WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id AND l.key = %(keep_key)s::text
                 AND l.value = %(keep_value)s::text) AS is_kept
FROM evals.runs r
WHERE r.tenant_id = %(tenant)s::text
  AND r.state IN ('succeeded', 'failed', 'error', 'cancelled')
  AND coalesce(r.finished_at, r.created_at)
      <= clock_timestamp() - make_interval(secs => %(retention_seconds)s::double precision)
  AND (%(after_ended_at)s::timestamptz IS NULL
       OR (coalesce(r.finished_at, r.created_at), r.id) > (%(after_ended_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY coalesce(r.finished_at, r.created_at), r.id
LIMIT %(limit)s::integer;

-- name: read_runs_to_compare
-- What comparing needs to know of some runs. ids: of the runs. No lock.
SELECT r.id, r.name, r.state, r.dataset_name, r.dataset_version, s.sha256, r.config, r.config_sha256, r.finished_at,
       r.report -> 'evaluator_versions' AS evaluator_versions
FROM evals.runs r
JOIN evals.run_snapshots s ON s.tenant_id = r.tenant_id AND s.run_id = r.id
WHERE r.tenant_id = %(tenant)s::text AND r.id = ANY(%(ids)s::uuid[]);

-- name: find_previous_run
-- The newest run of the same name, and of the same source, that was created before a run and has a report. No lock.
SELECT p.id
FROM evals.runs r
JOIN evals.runs p ON p.tenant_id = r.tenant_id AND p.name = r.name AND p.source_id IS NOT DISTINCT FROM r.source_id
WHERE r.tenant_id = %(tenant)s::text AND r.id = %(id)s::uuid AND p.report IS NOT NULL
  AND (p.created_at, p.id) < (r.created_at, r.id)
ORDER BY p.created_at DESC, p.id DESC
LIMIT 1;

-- name: compare_results
-- What changed from one run to another, per evaluator: results are paired by record and trial where both have a score.
-- both, regressed, fixed, neither: pairs of pass/fail scores (1 and 1, 1 and 0, 0 and 1, 0 and 0). A verdict is -1 when
-- a pair passed and fails now, or, where nothing passes or fails, when its score is worse; +1 the other way round.
-- evaluators, signs: in the same order; sign 1 where higher scores are better, -1 where lower ones are, 0 where neither
-- is. limit: records listed of each kind. Reads all results of both runs. No lock.
WITH compared AS (
    SELECT e.evaluator, e.sign FROM unnest(%(evaluators)s::text[], %(signs)s::integer[]) AS e (evaluator, sign)
),
baseline AS (
    SELECT r.evaluator, r.record, r.trial, r.score, r.passed
    FROM evals.run_results r
    WHERE r.tenant_id = %(tenant)s::text AND r.run_id = %(baseline)s::uuid AND r.score IS NOT NULL
      AND r.evaluator = ANY(%(evaluators)s::text[])
),
candidate AS (
    SELECT r.evaluator, r.record, r.trial, r.score, r.passed
    FROM evals.run_results r
    WHERE r.tenant_id = %(tenant)s::text AND r.run_id = %(candidate)s::uuid AND r.score IS NOT NULL
      AND r.evaluator = ANY(%(evaluators)s::text[])
),
pairs AS MATERIALIZED (
    SELECT p.evaluator, p.record, p.trial, p.before, p.after, p.after - p.before AS change,
           CASE WHEN p.before IS NULL OR p.after IS NULL THEN 0
                WHEN p.passed_before IS NOT NULL AND p.passed_after IS NOT NULL
                    THEN p.passed_after::integer - p.passed_before::integer
                ELSE sign(p.after - p.before)::integer * c.sign END AS verdict
    FROM (
        SELECT evaluator, record, trial, b.score AS before, n.score AS after, b.passed AS passed_before,
               n.passed AS passed_after
        FROM baseline b
        FULL JOIN candidate n USING (evaluator, record, trial)
    ) AS p
    JOIN compared c ON c.evaluator = p.evaluator
),
totals AS (
    SELECT evaluator, count(change) AS pairs, avg(before) FILTER (WHERE change IS NOT NULL) AS baseline_mean,
           avg(after) FILTER (WHERE change IS NOT NULL) AS candidate_mean, avg(change) AS difference,
           regr_sxx(change, change) AS deviations,
           count(*) FILTER (WHERE before = 1 AND after = 1) AS both,
           count(*) FILTER (WHERE before = 1 AND after = 0) AS regressed,
           count(*) FILTER (WHERE before = 0 AND after = 1) AS fixed,
           count(*) FILTER (WHERE before = 0 AND after = 0) AS neither,
           count(*) FILTER (WHERE verdict < 0) AS regressions_count,
           count(*) FILTER (WHERE verdict > 0) AS fixes_count,
           count(*) FILTER (WHERE after IS NULL) AS baseline_only,
           count(*) FILTER (WHERE before IS NULL) AS candidate_only
    FROM pairs
    GROUP BY evaluator
),
listed AS (
    SELECT l.evaluator,
           jsonb_agg(l.entry ORDER BY l.place) FILTER (WHERE l.verdict < 0) AS regressions,
           jsonb_agg(l.entry ORDER BY l.place) FILTER (WHERE l.verdict > 0) AS fixes
    FROM (
        SELECT evaluator, verdict,
               jsonb_build_object('record', record, 'trial', trial, 'baseline', before, 'candidate', after) AS entry,
               row_number() OVER (PARTITION BY evaluator, verdict ORDER BY abs(change) DESC, record, trial) AS place
        FROM pairs
        WHERE verdict <> 0
    ) AS l
    WHERE l.place <= %(limit)s::integer
    GROUP BY l.evaluator
)
SELECT t.evaluator, t.pairs, t.baseline_mean, t.candidate_mean, t.difference, t.deviations, t.both, t.regressed, t.fixed,
       t.neither, t.regressions_count, t.fixes_count, t.baseline_only, t.candidate_only,
       coalesce(l.regressions, '[]'::jsonb) AS regressions, coalesce(l.fixes, '[]'::jsonb) AS fixes
FROM totals t
LEFT JOIN listed l ON l.evaluator = t.evaluator;
