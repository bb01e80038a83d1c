-- name: insert_reservation
-- Promise capacity for an upload. bytes: of the file; valid_seconds: how long its URL is valid.
-- Lock: the caller holds the advisory lock of the project's dataset bytes when there is a quota.
INSERT INTO packs.upload_reservations (tenant_id, id, name, format, bytes, sha256, mapping, nul, created_by, expires_at)
VALUES (%(tenant)s::text, %(id)s::uuid, %(name)s::text, %(format)s::text, %(bytes)s::bigint, %(sha256)s::text,
        %(mapping)s::jsonb, %(nul)s::text, %(created_by)s::text,
        clock_timestamp() + make_interval(secs => %(valid_seconds)s::integer))
RETURNING id, state, name, format, bytes, sha256, created_at, expires_at;

-- name: find_reservation
-- One reservation. No lock.
SELECT id, state, name, format, bytes, sha256, mapping, nul, created_at, created_by, expires_at, dataset_name,
       dataset_version, refusal
FROM packs.upload_reservations
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid;

-- name: end_reservation
-- open -> finalized (with its dataset), refused (with the reason: ImportFailure) or released; what does not apply is
-- NULL. No row comes back when it was ended already. Lock: its row.
UPDATE packs.upload_reservations
SET state = %(state)s::text, completed_at = clock_timestamp(), dataset_name = %(dataset_name)s::text,
    dataset_version = %(dataset_version)s::integer, refusal = %(refusal)s::jsonb
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND state = 'open'
RETURNING id;

-- name: list_stale_reservations
-- Open reservations whose URL has expired margin_seconds ago: no upload can still finish. After a position. No lock.
SELECT id, expires_at FROM packs.upload_reservations
WHERE tenant_id = %(tenant)s::text AND state = 'open'
  AND expires_at < clock_timestamp() - make_interval(secs => %(margin_seconds)s::integer)
  AND (%(after_expires_at)s::timestamptz IS NULL
       OR (expires_at, id) > (%(after_expires_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY expires_at, id
LIMIT %(limit)s::integer;
