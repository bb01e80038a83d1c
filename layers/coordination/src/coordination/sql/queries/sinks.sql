-- name: insert_run_sinks
-- Write the sinks of a new run. configs: in their order. No lock.
INSERT INTO evals.run_sinks (tenant_id, run_id, sink_no, config)
SELECT %(tenant)s::text, %(run_id)s::uuid, (s.place - 1)::integer, s.config
FROM unnest(%(configs)s::jsonb[]) WITH ORDINALITY AS s (config, place);

-- name: open_run_sinks
-- Queue the sinks of a run that has just got its report, each with its job; who writes Parquet is another than who writes
-- the rest. The last one is the latest job of what caused the run. Returns the wake-ups. Lock: the rows and the trigger's;
-- the caller holds the run's.
WITH opened AS (
    UPDATE evals.run_sinks
    SET state = 'queued'
    WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid AND state = 'waiting'
    RETURNING id, config
), job AS (
    INSERT INTO scheduler.jobs (tenant_id, id, kind, dedupe_key, payload, created_by)
    SELECT %(tenant)s::text, o.id, 'sink_export', o.id::text,
           jsonb_build_object('run', %(run_id)s::uuid, 'kind', o.config ->> 'kind'), 'event'
    FROM opened o
), cause AS (
    INSERT INTO scheduler.triggers AS g (tenant_id, kind, name, last_job_id, job_count, last_job_at)
    SELECT r.tenant_id, CASE WHEN r.source_id IS NULL THEN 'route' ELSE 'source' END,
           coalesce(r.source_id, 'runs.create'), (array_agg(o.id))[count(*)], count(*), clock_timestamp()
    FROM evals.runs r, opened o
    WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid
    GROUP BY r.tenant_id, r.source_id
    ON CONFLICT (tenant_id, kind, name) DO UPDATE
    SET last_job_id = excluded.last_job_id, job_count = g.job_count + excluded.job_count,
        last_job_at = excluded.last_job_at
)
INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, sent_at)
SELECT CASE o.config ->> 'format' WHEN 'parquet' THEN 'conversion' ELSE 'delivery' END, %(tenant)s::text, 'sink',
       o.id::text, clock_timestamp()
FROM opened o
RETURNING queue, kind, project, ref_id;

-- name: begin_sink
-- Count an attempt at a queued sink; no row comes back when it has ended, or is gone with its run. Lock: its row and its
-- job's.
WITH counted AS (
    UPDATE evals.run_sinks k
    SET attempts = k.attempts + 1
    FROM evals.runs r
    WHERE k.tenant_id = %(tenant)s::text AND k.id = %(id)s::uuid AND k.state = 'queued'
      AND r.tenant_id = k.tenant_id AND r.id = k.run_id
    RETURNING k.id, k.run_id, k.config, k.attempts, k.external_id, r.state, r.report, r.finished_at
), job AS (
    UPDATE scheduler.jobs j
    SET state = 'running', attempts = c.attempts, started_at = coalesce(j.started_at, clock_timestamp())
    FROM counted c
    WHERE j.tenant_id = %(tenant)s::text AND j.id = c.id AND j.state IN ('queued', 'running')
)
SELECT c.run_id, c.config, c.attempts, c.external_id, c.state, c.report, c.finished_at FROM counted c;

-- name: is_sink_queued
-- Whether a sink, and so its run with all its results, is still there. No lock.
SELECT EXISTS (
    SELECT 1 FROM evals.run_sinks WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'queued'
) AS is_queued;

-- name: note_external_id
-- Keep what the destination calls what was brought there. Lock: its row.
UPDATE evals.run_sinks
SET external_id = %(external_id)s::text
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'queued';

-- name: note_sink_error
-- Note why an attempt that another one follows has failed. error: for people. Lock: its row.
UPDATE evals.run_sinks
SET error = %(error)s::text
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'queued';

-- name: end_sink
-- End a sink and its job. state: succeeded or failed; error: or NULL. Lock: their rows.
WITH ended AS (
    UPDATE evals.run_sinks
    SET state = %(state)s::text, error = %(error)s::text, completed_at = clock_timestamp()
    WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'queued'
    RETURNING id
)
UPDATE scheduler.jobs j
SET state = %(state)s::text,
    error = CASE WHEN %(error)s::text IS NOT NULL THEN jsonb_build_object('detail', %(error)s::text) END,
    completed_at = clock_timestamp()
FROM ended
WHERE j.tenant_id = %(tenant)s::text AND j.id = ended.id AND j.state IN ('queued', 'running');
