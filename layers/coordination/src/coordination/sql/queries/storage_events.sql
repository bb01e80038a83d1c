-- name: record_storage_event
-- Write a storage event, its place in the outbox and its wake-up. event: dataset.published or dataset.removed; detail:
-- what the event says. Returns the wake-up. No lock.
WITH made AS (
    INSERT INTO packs.pack_storage_events (tenant_id, event, sha256, detail, created_by)
    VALUES (%(tenant)s::text, %(event)s::text, %(sha256)s::text, %(detail)s::jsonb, %(created_by)s::text)
    RETURNING tenant_id, id
), waiting AS (
    INSERT INTO packs.pack_storage_outbox (tenant_id, id)
    SELECT m.tenant_id, m.id FROM made m
)
INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, sent_at)
SELECT 'delivery', m.tenant_id, 'storage_event', m.id::text, clock_timestamp()
FROM made m
RETURNING queue, kind, project, ref_id;

-- name: begin_storage_event
-- Count an attempt to publish an event that is not published yet; no row comes back when it is, or is gone. Lock: the
-- outbox's row.
UPDATE packs.pack_storage_outbox o
SET attempts = o.attempts + 1
FROM packs.pack_storage_events e
WHERE o.tenant_id = %(tenant)s::text AND o.id = %(id)s::uuid AND o.published_at IS NULL
  AND e.tenant_id = o.tenant_id AND e.id = o.id
RETURNING o.attempts, e.event, e.detail, e.created_at, e.created_by;

-- name: acknowledge_storage_event
-- Note that an event was published. Lock: the outbox's row.
UPDATE packs.pack_storage_outbox
SET published_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND published_at IS NULL;
