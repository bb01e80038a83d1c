-- name: find_due_sweep
-- Whether a sweep is due now, and after which scope it goes on (NULL: from the first). interval_seconds (> 0) counts from
-- the beginning of the last sweep, unless its time was over before all scopes were reached; start_delay_seconds (>= 0)
-- from the installation. No lock.
SELECT clock_timestamp() AS now, r.stopped_after,
       CASE WHEN r.started_at IS NULL
            THEN (SELECT min(m.applied_at) FROM coordination.schema_migrations m)
                 + make_interval(secs => %(start_delay_seconds)s::double precision) <= clock_timestamp()
            ELSE r.stopped_after IS NOT NULL
                 OR r.started_at + make_interval(secs => %(interval_seconds)s::double precision) <= clock_timestamp()
       END AS is_due
FROM (SELECT 1) AS one
LEFT JOIN LATERAL (
    SELECT s.started_at, s.stopped_after
    FROM scheduler.sweep_receipts s
    ORDER BY s.started_at DESC, s.id DESC
    LIMIT 1) AS r ON true;

-- name: find_expired
-- Of the given tables of a scope those in which rows have expired, each with the place (age, id) before which they go.
-- expired_before: cut-offs; row_budgets: rows that stay at most, >= 1, or NULL, one for each table; tenant: NULL for the
-- global table. No lock.
SELECT f.table_name, f.before_at, f.before_id
FROM scheduler_app.find_expired(%(tenant)s, %(table_names)s, %(expired_before)s, %(row_budgets)s) AS f;

-- name: measure_expired
-- Expired rows of a table between two places (age, id), at most row_cap (rows, >= 1), and the age of the oldest. tenant:
-- NULL for the global table. No lock.
SELECT m.expired, extract(epoch FROM clock_timestamp() - m.oldest_at)::double precision AS oldest_age_seconds
FROM scheduler_app.measure_expired(
    %(table_name)s, %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(row_cap)s) AS m;

-- name: expire_jobs
-- Delete one batch of ended rows between two places (age, id), oldest first and archive their outcomes. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_jobs(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_runs
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_runs(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_graph_jobs
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_graph_jobs(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_policy_run_jobs
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_policy_run_jobs(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_estate_run_queue
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_estate_run_queue(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_pack_storage_outbox
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_pack_storage_outbox(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_failure_signatures
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_failure_signatures(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_job_history
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_job_history(
    %(tenant)s, %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: expire_workers
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1.
-- Locks: the rows, passing over those that are held.
SELECT e.selected, e.deleted, e.last_at, e.last_id, e.may_have_passed_over
FROM scheduler_app.expire_workers(
    %(before_at)s, %(before_id)s, %(after_at)s, %(after_id)s, %(batch)s) AS e;

-- name: insert_sweep_receipt
-- Note what a sweep did. stopped_after: the last scope that was reached when its time was over, or NULL; tables: counts by
-- table. No lock.
INSERT INTO scheduler.sweep_receipts (started_at, scope_count, failed_scope_count, stopped_after, tables)
VALUES (%(started_at)s::timestamptz, %(scope_count)s::integer, %(failed_scope_count)s::integer,
        %(stopped_after)s::text, %(tables)s::jsonb);

-- name: prune_sweep_receipts
-- Keep the newest receipts. kept: rows, >= 1. Lock: the rows.
DELETE FROM scheduler.sweep_receipts r
WHERE r.id IN (
    SELECT s.id FROM scheduler.sweep_receipts s ORDER BY s.started_at DESC, s.id DESC OFFSET %(kept)s::integer);

-- name: stop_silent_workers
-- Environments die without notice: those that were silent for silent_seconds (> 0) are stopped and idle. Lock: the rows.
UPDATE scheduler.workers
SET state = 'stopped', active_count = 0, stopped_at = clock_timestamp()
WHERE (state IN ('active', 'draining') OR active_count > 0)
  AND heartbeat_at < clock_timestamp() - make_interval(secs => %(silent_seconds)s::integer)
RETURNING id;

-- name: measure_aged_table
-- Counts of a table for the doctor, each at most row_cap (rows, >= 1). kept_seconds: age from which an ended row is
-- expired; tenant: NULL for the global table. No lock.
SELECT m.eligible, m.expired, m.protected, m.incomplete
FROM scheduler_app.measure_table(
    %(table_name)s::text, %(tenant)s::text,
    clock_timestamp() - make_interval(secs => %(kept_seconds)s::double precision),
    '00000000-0000-0000-0000-000000000000'::uuid, %(row_cap)s::integer) AS m;

-- name: measure_pipeline
-- What waits in a project. stuck_seconds: since a run was queued, > 0; row_cap: rows counted at most. No lock.
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM scheduler.estate_run_queue q
            WHERE q.tenant_id = %(tenant)s::text AND q.completed_at IS NULL AND q.outcome IS NULL
              AND q.acknowledged_at IS NULL
              AND q.queued_at < clock_timestamp() - make_interval(secs => %(stuck_seconds)s::integer)
              AND NOT EXISTS (SELECT 1 FROM coordination.projects p WHERE p.id = %(tenant)s::text AND p.paused)
            LIMIT %(row_cap)s::integer) AS stuck)::integer AS stuck_dispatches,
       (SELECT count(*) FROM scheduler.schedules d
        WHERE d.tenant_id = %(tenant)s::text AND d.retired_at IS NULL)::integer AS source_count,
       count(*)::integer AS idempotency_scope_count, coalesce(max(c.records), 0)::integer AS fullest_records,
       coalesce(max(c.bytes), 0)::bigint AS fullest_bytes
FROM (SELECT count(*) AS records, sum(r.stored_bytes) AS bytes
      FROM coordination.idempotency_records r
      WHERE r.tenant_id = %(tenant)s::text AND r.expires_at > clock_timestamp()
      GROUP BY r.principal) AS c;

-- name: measure_late_ticks
-- Ticks of sources that are due for late_seconds (> 0) and not decided. No lock.
SELECT count(*)::integer AS late_count,
       extract(epoch FROM clock_timestamp() - min(w.due_at))::double precision AS oldest_seconds
FROM coordination.wake_ups w
WHERE w.kind = 'source_tick'
  AND w.due_at < statement_timestamp() - make_interval(secs => %(late_seconds)s::integer);

-- name: measure_late_wake_ups
-- Work that is due for late_seconds (> 0) and for which no message was sent. No lock.
SELECT count(*)::integer AS late_count,
       extract(epoch FROM clock_timestamp() - min(w.due_at))::double precision AS oldest_seconds
FROM coordination.wake_ups w
WHERE w.sent_at IS NULL AND w.kind <> 'source_tick'
  AND w.due_at < statement_timestamp() - make_interval(secs => %(late_seconds)s::integer)
  AND NOT EXISTS (SELECT 1 FROM coordination.projects p WHERE p.id = w.project AND p.paused);

-- name: list_sweep_receipts
-- The newest receipts. limit: rows. No lock.
SELECT r.scope_count, r.failed_scope_count, r.stopped_after IS NULL AS reached_all_scopes, r.tables,
       extract(epoch FROM clock_timestamp() - r.started_at)::double precision AS age_seconds,
       extract(epoch FROM r.finished_at - r.started_at)::double precision AS seconds
FROM scheduler.sweep_receipts r
ORDER BY r.started_at DESC, r.id DESC
LIMIT %(limit)s::integer;

-- name: read_installation_age
-- Seconds since the first migration. No lock.
SELECT extract(epoch FROM clock_timestamp() - min(m.applied_at))::double precision AS age_seconds
FROM coordination.schema_migrations m;

-- name: read_capacity_receipt
-- The newest receipt of the capacity probe. No lock.
SELECT r.database_bytes, r.entries,
       extract(epoch FROM clock_timestamp() - r.measured_at)::double precision AS age_seconds
FROM scheduler.capacity_probe_receipt r
ORDER BY r.measured_at DESC, r.id DESC
LIMIT 1;

-- name: find_due_probe
-- Whether the sizes are to be measured: no receipt of the last seconds (> 0) has all of tables (schema.table) that are
-- there. No lock.
SELECT NOT EXISTS (
    SELECT 1 FROM scheduler.capacity_probe_receipt r
    WHERE r.measured_at > clock_timestamp() - make_interval(secs => %(seconds)s::integer)
      AND NOT EXISTS (
          SELECT 1 FROM unnest(%(tables)s::text[]) AS t (name)
          WHERE to_regclass(t.name) IS NOT NULL AND NOT r.entries ? t.name)) AS is_due;

-- name: insert_capacity_receipt
-- Measure the database and the tables that are there, with their indexes and TOAST, in bytes. tables: schema.table. By the
-- owner. No lock.
INSERT INTO scheduler.capacity_probe_receipt (database_bytes, entries)
SELECT pg_database_size(current_database()), coalesce(
    jsonb_object_agg(t.name, pg_total_relation_size(to_regclass(t.name))) FILTER (WHERE to_regclass(t.name) IS NOT NULL),
    '{}')
FROM unnest(%(tables)s::text[]) AS t (name)
RETURNING database_bytes, entries;

-- name: prune_capacity_receipts
-- Keep the newest receipts. kept: rows, >= 1. By the owner. Lock: the rows.
DELETE FROM scheduler.capacity_probe_receipt r
WHERE r.id IN (
    SELECT s.id FROM scheduler.capacity_probe_receipt s
    ORDER BY s.measured_at DESC, s.id DESC OFFSET %(kept)s::integer);

-- name: begin_invocation
-- This environment is at work. function: its name. Lock: the worker's row.
INSERT INTO scheduler.workers (id, function, active_count) VALUES (%(id)s::uuid, %(function)s::text, 1)
ON CONFLICT (id) DO UPDATE
SET state = 'active', active_count = 1, heartbeat_at = clock_timestamp(), stopped_at = NULL;

-- name: end_invocation
-- This environment is idle; its row may have been swept. function: its name. Lock: the worker's row.
UPDATE scheduler.workers
SET active_count = 0, heartbeat_at = clock_timestamp()
WHERE id = %(id)s::uuid AND function = %(function)s::text;
