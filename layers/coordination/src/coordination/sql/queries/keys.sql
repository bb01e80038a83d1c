-- name: insert_key
-- Insert a key; no row comes back when expires_at has passed on the database's clock. secret_sha256: 32 bytes. No lock.
INSERT INTO coordination.api_keys (id, name, secret_sha256, grants, expires_at, created_by)
SELECT %(id)s::text, %(name)s::text, %(secret_sha256)s::bytea, %(grants)s::jsonb, %(expires_at)s::timestamptz,
       %(created_by)s::text
WHERE %(expires_at)s::timestamptz IS NULL OR %(expires_at)s::timestamptz > clock_timestamp()
RETURNING id, name, grants, created_at, expires_at;

-- name: list_keys
-- Keys, newest first, without what is stored of their secrets. after_*: position of the page before, or NULL. No lock.
SELECT id, name, grants, created_at, expires_at
FROM coordination.api_keys
WHERE %(after_created_at)s::timestamptz IS NULL
   OR (created_at, id) < (%(after_created_at)s::timestamptz, %(after_id)s::text)
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s::integer;

-- name: delete_key
-- Delete a key and tell what it could do. Lock: its row.
DELETE FROM coordination.api_keys WHERE id = %(id)s::text RETURNING id, grants;
