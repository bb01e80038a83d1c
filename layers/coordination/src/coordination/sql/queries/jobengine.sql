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

-- name: find_expiry_bound
-- The place (age, id) before which rows of a table go. expired_before: the cut-off; row_budget: rows that stay at most,
-- >= 1, or NULL; tenant: NULL for the global table. No lock.
SELECT b.before_at, b.before_id
FROM scheduler_app.find_expiry_bound(
    %(table_name)s::text, %(tenant)s::text, %(expired_before)s::timestamptz, %(row_budget)s::integer) AS b;

-- name: measure_expired
-- Expired rows of a table, at most row_cap (rows, >= 1), and the age of the oldest. before_*: the place before which rows
-- go; tenant: NULL for the global table. No lock.
SELECT m.expired, extract(epoch FROM clock_timestamp() - m.oldest_at)::double precision AS oldest_age_seconds
FROM scheduler_app.measure_expired(
    %(table_name)s::text, %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(row_cap)s::integer) AS m;

-- name: measure_table
-- Counts of a table, each at most row_cap (rows, >= 1). before_*: the place before which rows go; tenant: NULL for the
-- global table. No lock.
SELECT m.eligible, m.expired, m.protected, m.incomplete
FROM scheduler_app.measure_table(
    %(table_name)s::text, %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(row_cap)s::integer) AS m;

-- name: expire_jobs
-- Delete one batch of ended rows between two places (age, id), oldest first, and archive their outcomes. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_jobs(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_runs
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_runs(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_graph_jobs
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_graph_jobs(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_policy_run_jobs
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_policy_run_jobs(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_estate_run_queue
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_estate_run_queue(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_pack_storage_outbox
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_pack_storage_outbox(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_failure_signatures
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_failure_signatures(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_job_history
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_job_history(
    %(tenant)s::text, %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

-- name: expire_workers
-- Delete one batch of ended rows between two places (age, id), oldest first. batch: rows, >= 1. Locks:
-- the rows, skipping locked ones.
SELECT e.selected, e.deleted, e.last_at, e.last_id
FROM scheduler_app.expire_workers(
    %(before_at)s::timestamptz, %(before_id)s::uuid, %(after_at)s::timestamptz, %(after_id)s::uuid,
    %(batch)s::integer) AS e;

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
