-- Global tables (no tenant is known yet, or work of all tenants is found through them; no payload) and the
-- idempotency records (a tenant table whose tenant is the project, or '-' for installation-wide routes).
SET LOCAL lock_timeout = '5s';

CREATE TABLE coordination.projects (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    description text NOT NULL DEFAULT '' CHECK (length(description) <= 1000),
    max_stored_runs integer CHECK (max_stored_runs > 0),
    max_dataset_bytes bigint CHECK (max_dataset_bytes > 0),
    run_retention text,
    paused boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE coordination.api_keys (
    id text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{16}$'),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    secret_sha256 bytea NOT NULL CHECK (octet_length(secret_sha256) = 32),
    grants jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    expires_at timestamptz
);

CREATE TABLE coordination.audit_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    principal text NOT NULL,
    project text NOT NULL,
    operation text NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('allowed', 'denied', 'reconciled')),
    target text NOT NULL DEFAULT '',
    request_id text NOT NULL
);
CREATE INDEX audit_events_by_project ON coordination.audit_events (project, id DESC);

CREATE TABLE coordination.leases (
    name text PRIMARY KEY,
    owner uuid,
    epoch bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    expires_at timestamptz,
    CHECK ((owner IS NULL) = (expires_at IS NULL))
);

CREATE TABLE coordination.wake_ups (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    queue text NOT NULL CHECK (queue IN ('conversion', 'evaluation', 'delivery')),
    project text NOT NULL,
    kind text NOT NULL,
    ref_id text NOT NULL,
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    sent_at timestamptz,
    UNIQUE (project, kind, ref_id)
);
CREATE INDEX wake_ups_by_due ON coordination.wake_ups (due_at, id);

CREATE TABLE coordination.idempotency_scopes (
    tenant_id text NOT NULL,
    principal text NOT NULL,
    PRIMARY KEY (tenant_id, principal)
);

CREATE TABLE coordination.idempotency_records (
    tenant_id text NOT NULL,
    principal text NOT NULL,
    key_sha256 bytea NOT NULL CHECK (octet_length(key_sha256) = 32),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    operation text NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    state text NOT NULL CHECK (state IN ('claimed', 'completed', 'tombstone')),
    owner_token uuid,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline_at timestamptz,
    completed_at timestamptz,
    expires_at timestamptz NOT NULL,
    status smallint,
    headers jsonb,
    body bytea,
    stored_bytes bigint NOT NULL DEFAULT 0 CHECK (stored_bytes >= 0),
    PRIMARY KEY (tenant_id, principal, key_sha256),
    UNIQUE (tenant_id, id),
    CHECK (state <> 'claimed' OR (owner_token IS NOT NULL AND deadline_at IS NOT NULL)),
    CHECK (state = 'claimed' OR completed_at IS NOT NULL),
    CHECK (state <> 'completed' OR (status IS NOT NULL AND headers IS NOT NULL AND body IS NOT NULL))
);
CREATE INDEX idempotency_records_by_expiry ON coordination.idempotency_records (tenant_id, principal, expires_at);

ALTER TABLE coordination.idempotency_records ENABLE ROW LEVEL SECURITY;
ALTER TABLE coordination.idempotency_records FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON coordination.idempotency_records
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON coordination.projects, coordination.api_keys, coordination.leases,
    coordination.wake_ups, coordination.idempotency_scopes, coordination.idempotency_records TO evalward_app;
-- Audit events are evidence: the application adds and reads them, nothing in it changes or removes one.
GRANT SELECT, INSERT ON coordination.audit_events TO evalward_app;

-- The claim of a local-mode keyed write, before its effect and in the same transaction.
-- A try-lock on the key keeps concurrent duplicates apart without waiting; the record is read in a statement of its
-- own after the lock, so that a winner that has just committed is seen (a volatile function under READ COMMITTED takes
-- a new snapshot for each statement).
-- Raises EW101 when another call holds the key, EW102 when a live record exists (the caller reads it and replays).
CREATE FUNCTION coordination.claim_local_write(scope_tenant text, scope_principal text, key_digest bytea)
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    lock_id bigint := coordination.advisory_lock_id(
        'idempotency-key', scope_tenant || ' ' || scope_principal || ' ' || encode(key_digest, 'hex'));
BEGIN
    PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    IF NOT pg_try_advisory_xact_lock(lock_id) THEN
        RAISE EXCEPTION 'the same key is being worked on' USING ERRCODE = 'EW101';
    END IF;
    PERFORM 1 FROM coordination.idempotency_records r
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.key_sha256 = key_digest
      AND r.expires_at > clock_timestamp();
    IF FOUND THEN
        RAISE EXCEPTION 'the key has a live record' USING ERRCODE = 'EW102';
    END IF;
END
$$;

-- Stores the outcome of a local-mode keyed write, last in its transaction: takes the scope's lock, prunes what has
-- expired, counts what is left against the caps in a fresh snapshot, inserts.
-- An outcome that does not fit the scope's remaining bytes becomes a tombstone: the effect is not undone for it.
-- Raises EW103 at the cap on records; DETAIL holds the whole seconds until the scope's next expiry.
-- Returns the records left in the scope.
CREATE FUNCTION coordination.store_outcome(
    scope_tenant text, scope_principal text, key_digest bytea, operation_id text, request_fingerprint bytea,
    outcome_status integer, outcome_headers jsonb, outcome_body bytea, retention interval,
    max_records integer, max_bytes bigint, max_outcome_bytes bigint)
    RETURNS integer
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    decided_at timestamptz;
    live_records integer;
    live_bytes bigint;
    outcome_bytes bigint := octet_length(outcome_body) + octet_length(outcome_headers::text);
    is_kept boolean;
BEGIN
    PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    PERFORM pg_advisory_xact_lock(
        coordination.advisory_lock_id('idempotency-scope', scope_tenant || ' ' || scope_principal));
    decided_at := clock_timestamp();
    DELETE FROM coordination.idempotency_records r
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.expires_at <= decided_at;
    SELECT count(*), coalesce(sum(r.stored_bytes), 0) INTO live_records, live_bytes
    FROM coordination.idempotency_records r
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal;
    IF live_records >= max_records THEN
        RAISE EXCEPTION 'the scope is full' USING ERRCODE = 'EW103', DETAIL = (
            SELECT greatest(1, ceil(extract(epoch FROM min(r.expires_at) - decided_at)))::bigint::text
            FROM coordination.idempotency_records r
            WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal);
    END IF;
    is_kept := outcome_bytes <= max_outcome_bytes AND live_bytes + outcome_bytes <= max_bytes;
    INSERT INTO coordination.idempotency_records (
        tenant_id, principal, key_sha256, operation, fingerprint, state, claimed_at, completed_at, expires_at,
        status, headers, body, stored_bytes)
    VALUES (
        scope_tenant, scope_principal, key_digest, operation_id, request_fingerprint,
        CASE WHEN is_kept THEN 'completed' ELSE 'tombstone' END, decided_at, decided_at, decided_at + retention,
        outcome_status, CASE WHEN is_kept THEN outcome_headers END, CASE WHEN is_kept THEN outcome_body END,
        CASE WHEN is_kept THEN outcome_bytes ELSE 0 END);
    INSERT INTO coordination.idempotency_scopes (tenant_id, principal) VALUES (scope_tenant, scope_principal)
    ON CONFLICT (tenant_id, principal) DO NOTHING;
    RETURN max_records - live_records - 1;
END
$$;

-- 64-bit id of a transaction-level advisory lock: the first 8 bytes of SHA-256(namespace, 0x00, name), big-endian,
-- signed. docs/locks.md lists the namespaces.
CREATE FUNCTION coordination.advisory_lock_id(namespace text, name text)
    RETURNS bigint
    LANGUAGE sql
    IMMUTABLE
    STRICT
    PARALLEL SAFE
AS $$
    SELECT ('x' || encode(substring(
        sha256(convert_to(namespace, 'UTF8') || '\x00'::bytea || convert_to(name, 'UTF8')) FROM 1 FOR 8), 'hex')
    )::bit(64)::bigint
$$;

-- Waits for the transaction-level lock (namespace, name), at most the transaction's lock_timeout.
CREATE FUNCTION coordination.take_advisory_lock(namespace text, name text)
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(coordination.advisory_lock_id(namespace, name));
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA coordination FROM PUBLIC;
GRANT EXECUTE ON FUNCTION coordination.claim_local_write(text, text, bytea) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.store_outcome(
    text, text, bytea, text, bytea, integer, jsonb, bytea, interval, integer, bigint, bigint) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.advisory_lock_id(text, text) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.take_advisory_lock(text, text) TO evalward_app;
