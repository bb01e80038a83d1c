-- Presigned uploads with their reservations, and the removal of dataset objects.
SET LOCAL lock_timeout = '5s';

-- A promise of capacity. Custody: only its finalization or the fenced recovery ends it, never age alone.
CREATE TABLE IF NOT EXISTS packs.upload_reservations (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'finalized', 'refused', 'released')),
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    format text NOT NULL CHECK (format IN ('jsonl', 'parquet')),
    bytes bigint NOT NULL CHECK (bytes > 0),
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    mapping jsonb,
    nul text NOT NULL CHECK (nul IN ('refuse', 'replace')),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    expires_at timestamptz NOT NULL,
    completed_at timestamptz,
    dataset_name text,
    dataset_version integer,
    refusal jsonb,
    PRIMARY KEY (tenant_id, id),
    CHECK ((state = 'finalized') = (dataset_version IS NOT NULL)),
    CHECK ((state = 'open') = (completed_at IS NULL))
);
CREATE INDEX IF NOT EXISTS upload_reservations_open ON packs.upload_reservations (tenant_id, expires_at, id) WHERE state = 'open';

-- One row per content that was ever removed. A publication reads the generation before it puts its object and again,
-- under the lock of the content, before it writes its row: a removal in between is seen, and the object put again.
CREATE TABLE IF NOT EXISTS packs.object_removals (
    tenant_id text NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    generation bigint NOT NULL DEFAULT 1 CHECK (generation >= 1),
    is_removing boolean NOT NULL DEFAULT true,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, sha256)
);

ALTER TABLE packs.upload_reservations ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.upload_reservations FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON packs.upload_reservations;
CREATE POLICY tenant ON packs.upload_reservations
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE packs.object_removals ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.object_removals FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON packs.object_removals;
CREATE POLICY tenant ON packs.object_removals
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON packs.upload_reservations, packs.object_removals TO evalward_app;
