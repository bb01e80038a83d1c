-- name: insert_webhook
-- Insert a webhook; no row comes back when the project has one of that id. events: names. No lock.
INSERT INTO evals.webhooks (tenant_id, id, url, events, created_by)
VALUES (%(tenant)s::text, %(id)s::text, %(url)s::text, %(events)s::text[], %(created_by)s::text)
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING tenant_id, id, url, events, generation, created_at, created_by;

-- name: find_webhook
-- One webhook. No lock.
SELECT tenant_id, id, url, events, generation, created_at, created_by
FROM evals.webhooks
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text;

-- name: list_webhooks
-- Webhooks, newest first. after_*: position of the page before, or NULL. No lock.
SELECT tenant_id, id, url, events, generation, created_at, created_by
FROM evals.webhooks
WHERE tenant_id = %(tenant)s::text
  AND (%(after_created_at)s::timestamptz IS NULL
       OR (created_at, id) < (%(after_created_at)s::timestamptz, %(after_id)s::text))
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s::integer;

-- name: lock_webhook_to_delete
-- One webhook that is about to be deleted: nobody adds a delivery before the transaction ends. Lock: its row.
SELECT id FROM evals.webhooks WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text FOR UPDATE;

-- name: delete_webhook_deliveries
-- Delete the deliveries of a webhook, cancel their open jobs and take back their wake-ups. Lock: the rows; the caller
-- holds the webhook's.
WITH gone AS (
    DELETE FROM evals.webhook_deliveries
    WHERE tenant_id = %(tenant)s::text AND webhook_id = %(id)s::text
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

-- name: delete_webhook
-- Delete a webhook whose deliveries are gone. Lock: its row, which the caller holds.
DELETE FROM evals.webhooks WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text;

-- name: emit_event
-- Write a delivery, its job and its wake-up for every webhook that listens to an event. run_id: or NULL; data: the
-- event's own fields. Returns the wake-ups. Lock: the webhooks' rows, shared, until the transaction ends.
WITH listening AS MATERIALIZED (
    SELECT w.tenant_id, w.id
    FROM evals.webhooks w
    WHERE w.tenant_id = %(tenant)s::text AND %(event)s::text = ANY (w.events)
    FOR KEY SHARE
), made AS (
    INSERT INTO evals.webhook_deliveries (tenant_id, webhook_id, event, run_id, payload)
    SELECT l.tenant_id, l.id, %(event)s::text, %(run_id)s::uuid, json_build_object(
               'type', %(event)s::text,
               'timestamp', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'data', %(data)s::json)
    FROM listening l
    RETURNING id, webhook_id
), job AS (
    INSERT INTO scheduler.jobs (tenant_id, id, kind, dedupe_key, payload, created_by)
    SELECT %(tenant)s::text, m.id, 'webhook_delivery', m.id::text,
           jsonb_build_object('webhook', m.webhook_id, 'event', %(event)s::text), 'event'
    FROM made m
)
INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, sent_at)
SELECT 'delivery', %(tenant)s::text, 'webhook', m.id::text, clock_timestamp()
FROM made m
RETURNING queue, kind, project, ref_id;

-- name: prune_deliveries
-- Forget some of the ended deliveries that are older than retention_seconds, so that a project's list does not grow for
-- ever. limit: rows at most. Lock: the rows, skipping locked ones.
WITH old AS MATERIALIZED (
    SELECT d.id
    FROM evals.webhook_deliveries d
    WHERE d.tenant_id = %(tenant)s::text AND d.state IN ('delivered', 'failed')
      AND d.completed_at < clock_timestamp() - make_interval(secs => %(retention_seconds)s::integer)
    ORDER BY d.completed_at
    LIMIT %(limit)s::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM evals.webhook_deliveries d
USING old
WHERE d.tenant_id = %(tenant)s::text AND d.id = old.id AND d.state IN ('delivered', 'failed');

-- name: insert_test_delivery
-- Write what became of a ping that was sent already; no row comes back when the webhook is gone. payload: as it was sent;
-- state: delivered or failed; response_status, error: or NULL. Lock: the webhook's row, shared.
INSERT INTO evals.webhook_deliveries (
    tenant_id, id, webhook_id, event, payload, state, attempts, next_attempt_at, attempted_at, response_status, error,
    created_at, completed_at)
SELECT w.tenant_id, %(id)s::uuid, w.id, 'ping', %(payload)s::json, %(state)s::text, 1, NULL, clock_timestamp(),
       %(response_status)s::integer, %(error)s::text, clock_timestamp(), clock_timestamp()
FROM evals.webhooks w
WHERE w.tenant_id = %(tenant)s::text AND w.id = %(webhook)s::text
FOR KEY SHARE
RETURNING tenant_id, id, webhook_id, event, run_id, payload, state, attempts, next_attempt_at, attempted_at,
          response_status, error, created_at, completed_at;

-- name: list_deliveries
-- Deliveries of a webhook, newest first. state: or NULL for all; after_*: position of the page before, or NULL. No lock.
SELECT tenant_id, id, webhook_id, event, run_id, payload, state, attempts, next_attempt_at, attempted_at,
       response_status, error, created_at, completed_at
FROM evals.webhook_deliveries
WHERE tenant_id = %(tenant)s::text AND webhook_id = %(webhook)s::text
  AND (%(state)s::text IS NULL OR state = %(state)s::text)
  AND (%(after_created_at)s::timestamptz IS NULL
       OR (created_at, id) < (%(after_created_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s::integer;

-- name: requeue_delivery
-- Make a delivery due now, with all its attempts before it; no row comes back when there is none. Lock: its row.
UPDATE evals.webhook_deliveries
SET state = 'queued', attempts = 0, next_attempt_at = clock_timestamp(), completed_at = NULL
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid
RETURNING tenant_id, id, webhook_id, event, run_id, payload, state, attempts, next_attempt_at, attempted_at,
          response_status, error, created_at, completed_at;

-- name: requeue_delivery_job
-- Open the job of a delivery that is sent again; the job may have been swept. Lock: its row.
INSERT INTO scheduler.jobs (tenant_id, id, kind, dedupe_key, payload, created_by)
VALUES (%(tenant)s::text, %(id)s::uuid, 'webhook_delivery', %(id)s::uuid::text,
        jsonb_build_object('webhook', %(webhook)s::text, 'event', %(event)s::text), %(created_by)s::text)
ON CONFLICT (tenant_id, id) DO UPDATE
SET state = 'queued', attempts = 0, error = NULL, started_at = NULL, completed_at = NULL;

-- name: read_delivery
-- A queued delivery with where it goes; no row when it has ended or is gone. is_due: its time has come, give or take a
-- second between SQS's clock and ours. Lock: its row.
SELECT d.id, d.webhook_id, d.payload, d.attempts, d.next_attempt_at <= clock_timestamp() + interval '1 second' AS is_due,
       w.url, w.generation
FROM evals.webhook_deliveries d
JOIN evals.webhooks w ON w.tenant_id = d.tenant_id AND w.id = d.webhook_id
WHERE d.tenant_id = %(tenant)s::text AND d.id = %(id)s::uuid AND d.state = 'queued'
FOR NO KEY UPDATE OF d;

-- name: begin_delivery
-- Count an attempt before it is made. Lock: the rows of the delivery, which the caller holds, and of its job.
WITH counted AS (
    UPDATE evals.webhook_deliveries
    SET attempts = attempts + 1, attempted_at = clock_timestamp()
    WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'queued'
    RETURNING id, attempts
)
UPDATE scheduler.jobs j
SET state = 'running', attempts = counted.attempts, started_at = coalesce(j.started_at, clock_timestamp())
FROM counted
WHERE j.tenant_id = %(tenant)s::text AND j.id = counted.id AND j.state IN ('queued', 'running');

-- name: postpone_delivery
-- Note a failed attempt that another one follows, delay_seconds from now (seconds, > 0). response_status: or NULL; error:
-- for people. Lock: its row.
UPDATE evals.webhook_deliveries
SET next_attempt_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s::integer),
    response_status = %(response_status)s::integer, error = %(error)s::text
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'queued';

-- name: end_delivery
-- End a delivery and its job. state: delivered or failed; response_status: or NULL; error: or NULL. Lock: their rows.
WITH ended AS (
    UPDATE evals.webhook_deliveries
    SET state = %(state)s::text, next_attempt_at = NULL, response_status = %(response_status)s::integer,
        error = %(error)s::text, completed_at = clock_timestamp()
    WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'queued'
    RETURNING id
)
UPDATE scheduler.jobs j
SET state = CASE WHEN %(state)s::text = 'delivered' THEN 'succeeded' ELSE 'failed' END,
    error = CASE WHEN %(error)s::text IS NOT NULL THEN jsonb_build_object('detail', %(error)s::text) END,
    completed_at = clock_timestamp()
FROM ended
WHERE j.tenant_id = %(tenant)s::text AND j.id = ended.id AND j.state IN ('queued', 'running');
