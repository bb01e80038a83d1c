-- name: record_failure
-- Note that work failed: one row for a kind, work and normalized error, counted on. What was resolved is unresolved again;
-- what nobody will fix stays so. kind, work: what failed; error: normalized; sample: for people. Lock: its row.
INSERT INTO scheduler.failure_signatures (tenant_id, signature, kind, work, error, sample)
SELECT %(tenant)s::text,
       encode(sha256(convert_to(concat_ws(E'\n', f.kind, f.work, f.error), 'UTF8')), 'hex'),
       f.kind, f.work, f.error, f.sample
FROM (SELECT %(kind)s::text, %(work)s::text, %(error)s::text, %(sample)s::text) AS f (kind, work, error, sample)
ON CONFLICT (tenant_id, signature) DO UPDATE
SET occurrence_count = failure_signatures.occurrence_count + 1, last_seen_at = clock_timestamp(),
    sample = excluded.sample,
    state = CASE failure_signatures.state WHEN 'resolved' THEN 'unresolved' ELSE failure_signatures.state END,
    resolved_at = NULL, resolved_by = NULL;

-- name: record_run_failure
-- Like record_failure, for a run: its work is the source that made it, or else its name, so that the next run of the same
-- kind can resolve it. No row comes about when the run is gone. Lock: its row.
INSERT INTO scheduler.failure_signatures (tenant_id, signature, kind, work, error, sample)
SELECT %(tenant)s::text,
       encode(sha256(convert_to(concat_ws(E'\n', f.kind, f.work, f.error), 'UTF8')), 'hex'),
       f.kind, f.work, f.error, f.sample
FROM (SELECT %(kind)s::text, coalesce('source:' || r.source_id, 'run:' || r.name), %(error)s::text, %(sample)s::text
      FROM evals.runs r
      WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid) AS f (kind, work, error, sample)
ON CONFLICT (tenant_id, signature) DO UPDATE
SET occurrence_count = failure_signatures.occurrence_count + 1, last_seen_at = clock_timestamp(),
    sample = excluded.sample,
    state = CASE failure_signatures.state WHEN 'resolved' THEN 'unresolved' ELSE failure_signatures.state END,
    resolved_at = NULL, resolved_by = NULL;

-- name: resolve_failures_of_work
-- Resolve what failed before of work that has just succeeded. kinds: of failures. Lock: the rows, in the order of their
-- ids.
WITH open AS MATERIALIZED (
    SELECT f.tenant_id, f.id
    FROM scheduler.failure_signatures f
    WHERE f.tenant_id = %(tenant)s::text AND f.kind = ANY(%(kinds)s::text[]) AND f.work = %(work)s::text
      AND f.state IN ('unresolved', 'investigating')
    ORDER BY f.id
    FOR UPDATE
)
UPDATE scheduler.failure_signatures f
SET state = 'resolved', resolved_at = clock_timestamp(), resolved_by = 'work'
FROM open
WHERE f.tenant_id = open.tenant_id AND f.id = open.id;

-- name: resolve_failures_of_run
-- Like resolve_failures_of_work, for a run that has got its report. Lock: the rows, in the order of their ids.
WITH open AS MATERIALIZED (
    SELECT f.tenant_id, f.id
    FROM evals.runs r
    JOIN scheduler.failure_signatures f
        ON f.tenant_id = r.tenant_id AND f.work = coalesce('source:' || r.source_id, 'run:' || r.name)
    WHERE r.tenant_id = %(tenant)s::text AND r.id = %(run_id)s::uuid AND f.kind IN ('run', 'shard')
      AND f.state IN ('unresolved', 'investigating')
    ORDER BY f.id
    FOR UPDATE OF f
)
UPDATE scheduler.failure_signatures f
SET state = 'resolved', resolved_at = clock_timestamp(), resolved_by = 'work'
FROM open
WHERE f.tenant_id = open.tenant_id AND f.id = open.id;

-- name: list_failures
-- Failures, last seen first. state, kind: or NULL for all; after_*: position of the page before, or NULL. No lock.
SELECT f.tenant_id, f.id, f.kind, f.work, f.error, f.sample, f.state, f.occurrence_count, f.first_seen_at, f.last_seen_at,
       f.resolved_at, f.resolved_by
FROM scheduler.failure_signatures f
WHERE f.tenant_id = %(tenant)s::text
  AND (%(state)s::text IS NULL OR f.state = %(state)s::text)
  AND (%(kind)s::text IS NULL OR f.kind = %(kind)s::text)
  AND (%(after_last_seen_at)s::timestamptz IS NULL
       OR (f.last_seen_at, f.id) < (%(after_last_seen_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY f.last_seen_at DESC, f.id DESC
LIMIT %(limit)s::integer;

-- name: set_failure_state
-- Say what is done about a failure; no row comes back when there is none. state: investigating, resolved, wont_fix or
-- unresolved; principal: who says so. Lock: its row.
UPDATE scheduler.failure_signatures f
SET state = %(state)s::text,
    resolved_at = CASE WHEN %(state)s::text = 'resolved' THEN clock_timestamp() END,
    resolved_by = CASE WHEN %(state)s::text = 'resolved' THEN %(principal)s::text END
WHERE f.tenant_id = %(tenant)s::text AND f.id = %(id)s::uuid
RETURNING f.tenant_id, f.id, f.kind, f.work, f.error, f.sample, f.state, f.occurrence_count, f.first_seen_at,
          f.last_seen_at, f.resolved_at, f.resolved_by;
