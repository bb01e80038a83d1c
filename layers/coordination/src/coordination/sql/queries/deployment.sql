-- name: find_role
-- A role and what it may; no row when there is none. name: of the role. No lock.
SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_catalog.pg_roles WHERE rolname = %(name)s::text;

-- name: find_installation_key
-- Whether a key that still works owns the installation: with none, nobody could make one. No lock.
SELECT k.id FROM coordination.api_keys k
WHERE k.grants @> '[{"project": "*", "role": "owner"}]'::jsonb
  AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
LIMIT 1;

-- name: insert_first_key
-- The key with which an installation begins; its text is in the admin key secret. secret_sha256: 32 bytes. No lock.
INSERT INTO coordination.api_keys (id, name, secret_sha256, grants, created_by)
VALUES (%(id)s::text, 'first key', %(secret_sha256)s::bytea, %(grants)s::jsonb, 'deployment');
