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

-- name: count_dataset_bytes
-- What a project's quota of dataset bytes counts: each published content once, and the promised bytes of open
-- reservations other than except_id (or NULL). Lock: the caller holds the advisory lock of the project's dataset bytes.
SELECT coalesce((SELECT sum(contents.bytes) FROM (
                     SELECT p.sha256, max(p.bytes) AS bytes FROM packs.packs p
                     WHERE p.tenant_id = %(tenant)s::text AND p.sha256 <> coalesce(%(sha256)s::text, '')
                     GROUP BY p.sha256) AS contents), 0)::bigint
       + coalesce((SELECT sum(u.bytes) FROM packs.upload_reservations u
                   WHERE u.tenant_id = %(tenant)s::text AND u.state = 'open'
                     AND u.id IS DISTINCT FROM %(except_id)s::uuid), 0)::bigint AS bytes;

-- name: read_removal
-- How often a content was removed, and whether it is being removed; no row when never. No lock.
SELECT generation, is_removing FROM packs.object_removals
WHERE tenant_id = %(tenant)s::text AND sha256 = %(sha256)s::text;

-- name: begin_removal
-- Begin to remove a content's objects unless a version or a run's snapshot refers to it; no row comes back then.
-- Lock: the caller holds the advisory lock of the content.
INSERT INTO packs.object_removals AS o (tenant_id, sha256)
SELECT %(tenant)s::text, %(sha256)s::text
WHERE NOT EXISTS (SELECT 1 FROM packs.packs p WHERE p.tenant_id = %(tenant)s::text AND p.sha256 = %(sha256)s::text)
  AND NOT EXISTS (SELECT 1 FROM evals.run_snapshots s
                  WHERE s.tenant_id = %(tenant)s::text AND s.sha256 = %(sha256)s::text)
ON CONFLICT (tenant_id, sha256) DO UPDATE
SET generation = o.generation + 1, is_removing = true, updated_at = clock_timestamp()
RETURNING generation;

-- name: end_removal
-- The objects of a content are gone. Lock: the row; the caller holds the lease of the removal.
UPDATE packs.object_removals
SET is_removing = false, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND sha256 = %(sha256)s::text;

-- name: delete_versions
-- Delete all names and versions of a content. Lock: the rows; the caller holds the advisory lock of the content.
DELETE FROM packs.packs
WHERE tenant_id = %(tenant)s::text AND sha256 = %(sha256)s::text
RETURNING name, version;

-- name: list_snapshot_runs
-- Runs whose snapshot is this content, some of them. No lock.
SELECT s.run_id FROM evals.run_snapshots s
WHERE s.tenant_id = %(tenant)s::text AND s.sha256 = %(sha256)s::text
ORDER BY s.run_id
LIMIT %(limit)s::integer;

-- name: share_version
-- Keep a version from being deleted until the transaction ends; no row comes back when it is gone. Lock: its row, shared.
SELECT id FROM packs.packs
WHERE tenant_id = %(tenant)s::text AND name = %(name)s::text AND version = %(version)s::integer
FOR SHARE;

-- name: find_unreferenced
-- Those of some contents that no version and no run's snapshot refers to. sha256s: 64 hex digits each. No lock.
SELECT c.sha256
FROM unnest(%(sha256s)s::text[]) AS c (sha256)
WHERE NOT EXISTS (SELECT 1 FROM packs.packs p WHERE p.tenant_id = %(tenant)s::text AND p.sha256 = c.sha256)
  AND NOT EXISTS (SELECT 1 FROM evals.run_snapshots s WHERE s.tenant_id = %(tenant)s::text AND s.sha256 = c.sha256)
ORDER BY c.sha256;
