-- name: lock_migrations
-- Keep two deployments from migrating at once. Lock: transaction-level advisory, waits. The id is
-- coordination.advisory_lock_id('migrations', 'ledger'), written out because the function comes with a migration.
SELECT pg_advisory_xact_lock(-2855409323355568119);

-- name: create_ledger_schema
-- The schema of the ledger, before the first migration. No lock beyond its own.
CREATE SCHEMA IF NOT EXISTS coordination;

-- name: create_ledger
-- The ledger of applied migrations: number and name of the file, SHA-256 of its text. No lock beyond its own.
CREATE TABLE IF NOT EXISTS coordination.schema_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: read_ledger
-- The checksum under which a migration was applied; no row when it was not. number: the file's. No lock.
SELECT sha256 FROM coordination.schema_migrations WHERE number = %(number)s::integer;

-- name: insert_ledger
-- Note an applied migration in its own transaction. sha256: 64 hex digits of the file. No lock.
INSERT INTO coordination.schema_migrations (number, name, sha256)
VALUES (%(number)s::integer, %(name)s::text, %(sha256)s::text);
