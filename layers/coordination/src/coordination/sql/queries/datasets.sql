-- name: find_by_sha256
-- The newest version with this content. sha256: 64 hex digits. No lock.
SELECT tenant_id, id, name, version, sha256, path, records, bytes, created_at, created_by, source
FROM packs.packs
WHERE tenant_id = %(tenant)s::text AND sha256 = %(sha256)s::text
ORDER BY created_at DESC, id DESC
LIMIT 1;

-- name: find_by_name
-- One version of a name. version: number, or NULL for the newest. No lock.
SELECT tenant_id, id, name, version, sha256, path, records, bytes, created_at, created_by, source
FROM packs.packs
WHERE tenant_id = %(tenant)s::text AND name = %(name)s::text
  AND (%(version)s::integer IS NULL OR version = %(version)s::integer)
ORDER BY version DESC
LIMIT 1;

-- name: list_datasets
-- Versions, newest first. name: or NULL for all; after_*: position of the page before, or NULL. No lock.
SELECT tenant_id, id, name, version, sha256, path, records, bytes, created_at, created_by, source
FROM packs.packs
WHERE tenant_id = %(tenant)s::text
  AND (%(name)s::text IS NULL OR name = %(name)s::text)
  AND (%(after_created_at)s::timestamptz IS NULL
       OR (created_at, id) < (%(after_created_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s::integer;

-- name: publish_dataset
-- Insert the next version of a name unless its newest version has this content (then no row comes back).
-- bytes: of the canonical object. Lock: the caller holds the advisory lock of the name.
WITH newest AS MATERIALIZED (
    SELECT p.version, p.sha256
    FROM packs.packs p
    WHERE p.tenant_id = %(tenant)s::text AND p.name = %(name)s::text
    ORDER BY p.version DESC
    LIMIT 1
)
INSERT INTO packs.packs (tenant_id, name, version, sha256, path, records, bytes, source, created_by)
SELECT %(tenant)s::text, %(name)s::text, coalesce((SELECT version FROM newest), 0) + 1, %(sha256)s::text,
       %(path)s::text, %(records)s::integer, %(bytes)s::bigint, %(source)s::text, %(created_by)s::text
WHERE NOT EXISTS (SELECT 1 FROM newest WHERE newest.sha256 = %(sha256)s::text)
RETURNING tenant_id, id, name, version, sha256, path, records, bytes, created_at, created_by, source;
