-- Dataset versions. Custody: never swept; a version goes only when someone deletes its dataset.
SET LOCAL lock_timeout = '5s';

CREATE TABLE IF NOT EXISTS packs.packs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    version integer NOT NULL CHECK (version >= 1),
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    path text NOT NULL,
    records integer NOT NULL CHECK (records > 0),
    bytes bigint NOT NULL CHECK (bytes > 0),
    source text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name, version)
);
CREATE INDEX IF NOT EXISTS packs_by_sha256 ON packs.packs (tenant_id, sha256, created_at DESC);
CREATE INDEX IF NOT EXISTS packs_by_age ON packs.packs (tenant_id, created_at DESC, id DESC);

ALTER TABLE packs.packs ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.packs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON packs.packs;
CREATE POLICY tenant ON packs.packs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON packs.packs TO evalward_app;
