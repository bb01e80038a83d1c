-- name: insert_import
-- Write the job of an import, queued, or failed when there is an error already, and note it as the latest of what caused
-- it; no row comes back when its cause was seen before. payload: ImportOrder; error: ImportFailure or NULL; cause_kind,
-- cause_name: of the trigger. Lock: the trigger's row.
WITH made AS (
    INSERT INTO scheduler.jobs (tenant_id, kind, dedupe_key, payload, created_by, state, error, completed_at)
    VALUES (%(tenant)s::text, 'dataset_import', %(dedupe_key)s::text, %(payload)s::jsonb, %(created_by)s::text,
            CASE WHEN %(error)s::jsonb IS NULL THEN 'queued' ELSE 'failed' END, %(error)s::jsonb,
            CASE WHEN %(error)s::jsonb IS NOT NULL THEN clock_timestamp() END)
    ON CONFLICT (tenant_id, kind, dedupe_key) DO NOTHING
    RETURNING tenant_id, id, state, payload, attempts, result, error, created_at, created_by, started_at, completed_at
), cause AS (
    INSERT INTO scheduler.triggers AS g (tenant_id, kind, name, last_job_id, job_count, last_job_at)
    SELECT m.tenant_id, %(cause_kind)s::text, %(cause_name)s::text, m.id, 1, clock_timestamp()
    FROM made m
    ON CONFLICT (tenant_id, kind, name) DO UPDATE
    SET last_job_id = excluded.last_job_id, job_count = g.job_count + 1, last_job_at = excluded.last_job_at
)
SELECT m.tenant_id, m.id, m.state, m.payload, m.attempts, m.result, m.error, m.created_at, m.created_by, m.started_at,
       m.completed_at
FROM made m;

-- name: find_import
-- One import. No lock.
SELECT tenant_id, id, state, payload, attempts, result, error, created_at, created_by, started_at, completed_at
FROM scheduler.jobs
WHERE tenant_id = %(tenant)s::text AND kind = 'dataset_import' AND id = %(id)s::uuid;

-- name: list_imports
-- Imports, newest first. state: or NULL for all; after_*: position of the page before, or NULL. No lock.
SELECT tenant_id, id, state, payload, attempts, result, error, created_at, created_by, started_at, completed_at
FROM scheduler.jobs
WHERE tenant_id = %(tenant)s::text AND kind = 'dataset_import'
  AND (%(state)s::text IS NULL OR state = %(state)s::text)
  AND (%(after_created_at)s::timestamptz IS NULL
       OR (created_at, id) < (%(after_created_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s::integer;

-- name: begin_import
-- Begin an attempt at an import that is not finished; no row comes back when it is, or is unknown. Lock: its row.
UPDATE scheduler.jobs
SET state = 'running', attempts = attempts + 1, started_at = coalesce(started_at, clock_timestamp())
WHERE tenant_id = %(tenant)s::text AND kind = 'dataset_import' AND id = %(id)s::uuid AND state IN ('queued', 'running')
RETURNING attempts, payload, created_by, dedupe_key;

-- name: find_newer_import
-- A finished import of a later write to the same object. dedupe_key: of this import; place: its beginning, which names
-- the object. No lock.
SELECT id FROM scheduler.jobs
WHERE tenant_id = %(tenant)s::text AND kind = 'dataset_import' AND state = 'succeeded'
  AND starts_with(dedupe_key, %(place)s::text)
  AND dedupe_key COLLATE "C" > %(dedupe_key)s::text COLLATE "C"
LIMIT 1;

-- name: succeed_import
-- End an import with the dataset it made. result: Dataset. Lock: its row.
UPDATE scheduler.jobs
SET state = 'succeeded', result = %(result)s::jsonb, error = NULL, completed_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'running';

-- name: fail_import
-- End an import with the reason. error: ImportFailure. Lock: its row.
UPDATE scheduler.jobs
SET state = 'failed', error = %(error)s::jsonb, completed_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state IN ('queued', 'running');
