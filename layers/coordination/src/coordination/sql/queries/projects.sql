-- name: insert_project
-- Insert a project; no row comes back when the id is taken. max_dataset_bytes: bytes or NULL. No lock.
INSERT INTO coordination.projects (id, description, max_stored_runs, max_dataset_bytes, run_retention, paused, created_by)
VALUES (%(id)s::text, %(description)s::text, %(max_stored_runs)s::integer, %(max_dataset_bytes)s::bigint,
        %(run_retention)s::text, %(paused)s::boolean, %(created_by)s::text)
ON CONFLICT (id) DO NOTHING
RETURNING id, description, max_stored_runs, max_dataset_bytes, run_retention, paused, created_at, created_by, updated_at;

-- name: find_project
-- One project. No lock.
SELECT id, description, max_stored_runs, max_dataset_bytes, run_retention, paused, created_at, created_by, updated_at
FROM coordination.projects
WHERE id = %(id)s::text;

-- name: update_project
-- Write all changeable fields of a project. Lock: its row.
UPDATE coordination.projects
SET description = %(description)s::text, max_stored_runs = %(max_stored_runs)s::integer,
    max_dataset_bytes = %(max_dataset_bytes)s::bigint, run_retention = %(run_retention)s::text,
    paused = %(paused)s::boolean, updated_at = clock_timestamp()
WHERE id = %(id)s::text
RETURNING id, description, max_stored_runs, max_dataset_bytes, run_retention, paused, created_at, created_by, updated_at;

-- name: list_projects
-- Projects by id. visible: ids, or NULL for all; after: the last id of the page before, or NULL. No lock.
SELECT id, description, max_stored_runs, max_dataset_bytes, run_retention, paused, created_at, created_by, updated_at
FROM coordination.projects
WHERE (%(visible)s::text[] IS NULL OR id = ANY(%(visible)s::text[]))
  AND (%(after)s::text IS NULL OR id > %(after)s::text)
ORDER BY id
LIMIT %(limit)s::integer;

-- name: share_project
-- Read a project and keep it from being changed until the transaction ends. Lock: its row, shared.
SELECT id, description, max_stored_runs, max_dataset_bytes, run_retention, paused, created_at, created_by, updated_at
FROM coordination.projects
WHERE id = %(id)s::text
FOR SHARE;

-- name: lock_project
-- Read a project in order to change it. Lock: its row, until the transaction ends.
SELECT id, description, max_stored_runs, max_dataset_bytes, run_retention, paused, created_at, created_by, updated_at
FROM coordination.projects
WHERE id = %(id)s::text
FOR UPDATE;
