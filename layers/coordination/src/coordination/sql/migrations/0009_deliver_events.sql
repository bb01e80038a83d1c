-- Webhooks and what they are sent, sinks of runs, and storage events with their outbox.
SET LOCAL lock_timeout = '5s';

-- An endpoint of a project. Its secret is derived from a master secret, the project, the id and the generation, and is
-- stored nowhere: a webhook that is deleted and made again has another generation, and so another secret.
CREATE TABLE evals.webhooks (
    tenant_id text NOT NULL,
    id text NOT NULL CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    url text NOT NULL CHECK (length(url) BETWEEN 1 AND 2000),
    events text[] NOT NULL CHECK (
        cardinality(events) > 0
        AND events <@ ARRAY['run.finished', 'run.gate_failed', 'dataset.published', 'dataset.import_failed',
                            'source.window_missed', 'ping']),
    generation bigint GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX webhooks_by_age ON evals.webhooks (tenant_id, created_at DESC, id DESC);

-- One event for one webhook. `id` is the webhook-id header: the same for every attempt.
CREATE TABLE evals.webhook_deliveries (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    webhook_id text NOT NULL,
    event text NOT NULL,
    run_id uuid,
    payload json NOT NULL,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'delivered', 'failed')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    next_attempt_at timestamptz DEFAULT clock_timestamp(),
    attempted_at timestamptz,
    response_status integer,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, webhook_id) REFERENCES evals.webhooks (tenant_id, id),
    CHECK ((state = 'queued') = (next_attempt_at IS NOT NULL)),
    CHECK ((state = 'queued') = (completed_at IS NULL))
);
CREATE INDEX webhook_deliveries_by_webhook ON evals.webhook_deliveries (tenant_id, webhook_id, created_at DESC, id DESC);
-- What has ended long ago is forgotten.
CREATE INDEX webhook_deliveries_by_end ON evals.webhook_deliveries (tenant_id, completed_at)
    WHERE state IN ('delivered', 'failed');
CREATE INDEX webhook_deliveries_by_run ON evals.webhook_deliveries (tenant_id, run_id) WHERE run_id IS NOT NULL;

-- What happened to datasets in the bucket. Custody: never swept.
CREATE TABLE IF NOT EXISTS packs.pack_storage_events (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    event text NOT NULL CHECK (event IN ('dataset.published', 'dataset.removed')),
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    detail jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX IF NOT EXISTS pack_storage_events_by_age ON packs.pack_storage_events (tenant_id, created_at DESC, id DESC);

-- A storage event on its way to EventBridge; published_at is the acknowledgement. Operational: swept after it.
CREATE TABLE IF NOT EXISTS packs.pack_storage_outbox (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, id) REFERENCES packs.pack_storage_events (tenant_id, id)
);

ALTER TABLE evals.webhooks ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.webhooks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.webhooks
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.webhook_deliveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.webhook_deliveries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.webhook_deliveries
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE packs.pack_storage_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.pack_storage_events FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON packs.pack_storage_events;
CREATE POLICY tenant ON packs.pack_storage_events
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE packs.pack_storage_outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.pack_storage_outbox FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON packs.pack_storage_outbox;
CREATE POLICY tenant ON packs.pack_storage_outbox
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.webhooks, evals.webhook_deliveries, packs.pack_storage_events,
    packs.pack_storage_outbox TO evalward_app;
