-- name: insert_wake_up
-- Write a wake-up in the transaction that makes the work. A delayed one stays unsent for the pulse; one without delay
-- counts as sent at once, because its message follows the commit (the pulse sends again what nobody claims).
-- is_punctual: a delayed one's message follows the commit as well and the queue holds it back, so it counts as sent when
-- it is due. delay_seconds: seconds from now, >= 0. Lock: the row, when the same work is already waiting.
INSERT INTO coordination.wake_ups AS w (queue, project, kind, ref_id, due_at, sent_at)
VALUES (
    %(queue)s::text, %(project)s::text, %(kind)s::text, %(ref_id)s::text,
    clock_timestamp() + make_interval(secs => %(delay_seconds)s::integer),
    CASE WHEN %(delay_seconds)s::integer = 0 OR %(is_punctual)s::boolean
         THEN clock_timestamp() + make_interval(secs => %(delay_seconds)s::integer) END)
ON CONFLICT (project, kind, ref_id) DO UPDATE SET due_at = excluded.due_at, sent_at = excluded.sent_at;

-- name: delete_wake_up
-- Delete a wake-up in the transaction that ends the work. Lock: the row.
DELETE FROM coordination.wake_ups
WHERE project = %(project)s::text AND kind = %(kind)s::text AND ref_id = %(ref_id)s::text;

-- name: delay_wake_up
-- Put work off: due again after delay_seconds (seconds, >= 0), sent by the pulse. Lock: the row.
UPDATE coordination.wake_ups
SET due_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s::integer), sent_at = NULL
WHERE project = %(project)s::text AND kind = %(kind)s::text AND ref_id = %(ref_id)s::text;

-- name: claim_due_wake_ups
-- Mark up to batch_size wake-ups as sent and return them: those that are due and unsent, those whose lease has expired
-- (their worker died), and those sent resend_after_seconds ago that nobody claimed. A live lease means that someone is
-- at it. Ticks of sources have a pulse of their own (claim_due_sources). Due is what is due when the statement begins: an
-- index takes no volatile function. Lock: the rows, skipping those that another pulse holds.
WITH due AS MATERIALIZED (
    SELECT w.id
    FROM coordination.wake_ups w
    LEFT JOIN coordination.leases l ON l.name = w.kind || ':' || w.project || ':' || w.ref_id
    WHERE w.due_at <= statement_timestamp() AND w.kind <> 'source_tick'
      AND scheduler_app.is_to_be_sent(
          w.sent_at, l.expires_at, make_interval(secs => %(resend_after_seconds)s::integer))
    ORDER BY w.due_at, w.id
    LIMIT %(batch_size)s::integer
    FOR UPDATE OF w SKIP LOCKED
)
UPDATE coordination.wake_ups w
SET sent_at = clock_timestamp(), attempts = w.attempts + 1
FROM due
WHERE w.id = due.id
RETURNING w.queue, w.kind, w.project, w.ref_id;

-- name: unsend_wake_up
-- Give a wake-up whose message could not be sent back to the pulse. Lock: the row.
UPDATE coordination.wake_ups
SET sent_at = NULL
WHERE project = %(project)s::text AND kind = %(kind)s::text AND ref_id = %(ref_id)s::text;

-- name: delete_wake_ups
-- Delete the wake-ups of several works of one kind. ref_ids: what they refer to. Lock: the rows.
DELETE FROM coordination.wake_ups
WHERE project = %(project)s::text AND kind = %(kind)s::text AND ref_id = ANY(%(ref_ids)s::text[]);

-- name: measure_backlog
-- Count the work that is due and in nobody's hands, at most limit of it, and tell how many seconds the oldest has waited.
-- Work of paused projects does not wait, and ticks of sources have deadlines of their own. No lock.
SELECT
    count(*)::bigint AS due_count,
    coalesce(extract(epoch FROM clock_timestamp() - min(waiting.due_at)), 0)::double precision AS oldest_seconds
FROM (
    SELECT w.due_at
    FROM coordination.wake_ups w
    JOIN coordination.projects p ON p.id = w.project AND NOT p.paused
    LEFT JOIN coordination.leases l ON l.name = w.kind || ':' || w.project || ':' || w.ref_id
    WHERE w.due_at <= statement_timestamp() AND w.kind <> 'source_tick'
      AND (l.expires_at IS NULL OR l.expires_at <= clock_timestamp())
    ORDER BY w.due_at, w.id
    LIMIT %(limit)s::integer
) waiting;
