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
    records integer NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0,
    next_expiry_at timestamptz NOT NULL DEFAULT 'infinity',
    PRIMARY KEY (tenant_id, principal)
);

CREATE TABLE coordination.idempotency_records (
    tenant_id text NOT NULL,
    principal text NOT NULL,
    key_sha256 bytea NOT NULL,
    id uuid DEFAULT gen_random_uuid(),
    operation text NOT NULL,
    fingerprint bytea NOT NULL,
    state text NOT NULL,
    owner_token uuid,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline_at timestamptz,
    completed_at timestamptz,
    expires_at timestamptz NOT NULL,
    status smallint,
    headers jsonb,
    body bytea,
    stored_bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, principal, key_sha256)
);
-- Every record is in it: the predicate keeps the planner from reading a whole scope through this index in order to find
-- one key, which without statistics seems as good as the primary key. Who wants the index says the predicate.
CREATE INDEX idempotency_records_by_expiry ON coordination.idempotency_records (tenant_id, principal, expires_at)
    WHERE stored_bytes >= 0;
-- Records of remote writes: those that can be named as claims.
CREATE UNIQUE INDEX idempotency_records_by_id ON coordination.idempotency_records (tenant_id, id)
    WHERE owner_token IS NOT NULL;

ALTER TABLE coordination.idempotency_records ENABLE ROW LEVEL SECURITY;
ALTER TABLE coordination.idempotency_records FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON coordination.idempotency_records
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));
-- What a CHECK would say, as a part of the plan that a routine keeps: a CHECK is read from the catalog and prepared for
-- every statement that writes, which took a seventh of all that a key costs.
CREATE POLICY record_is_whole ON coordination.idempotency_records AS RESTRICTIVE
    USING (true)
    WITH CHECK (
        octet_length(key_sha256) = 32 AND octet_length(fingerprint) = 32 AND stored_bytes >= 0
        AND CASE state
                WHEN 'claimed' THEN owner_token IS NOT NULL AND id IS NOT NULL AND deadline_at IS NOT NULL
                WHEN 'completed' THEN completed_at IS NOT NULL AND status IS NOT NULL AND headers IS NOT NULL
                                      AND body IS NOT NULL
                WHEN 'tombstone' THEN completed_at IS NOT NULL
                ELSE false
            END);

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
BEGIN
    IF scope_tenant IS DISTINCT FROM current_setting('app.tenant_id', true) THEN
        PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    END IF;
    IF NOT pg_try_advisory_xact_lock(coordination.advisory_lock_id(
        'idempotency-key', scope_tenant || ' ' || scope_principal || ' ' || encode(key_digest, 'hex'))) THEN
        RAISE EXCEPTION 'the same key is being worked on' USING ERRCODE = 'EW101';
    END IF;
    PERFORM FROM coordination.idempotency_records r
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.key_sha256 = key_digest
      AND r.expires_at > clock_timestamp();
    IF FOUND THEN
        RAISE EXCEPTION 'the key has a live record' USING ERRCODE = 'EW102';
    END IF;
END
$$;

-- Ends a local-mode keyed write, last in its transaction: the audit event and the outcome. Takes the scope's lock, counts
-- the record in a fresh snapshot, prunes what has expired, holds the count against the caps, inserts.
-- An outcome without a body, which was too large, and one that does not fit the scope's remaining bytes become a
-- tombstone: the effect is not undone for it.
-- Raises EW103 at the cap on records; DETAIL holds the whole seconds until the scope's next expiry.
-- Returns the records left in the scope.
CREATE FUNCTION coordination.end_local_write(
    scope_tenant text, scope_principal text, key_digest bytea, operation_id text, request_fingerprint bytea,
    outcome_status integer, outcome_headers jsonb, outcome_body bytea, retention_seconds integer,
    max_records integer, max_bytes bigint, audit_outcome text, audit_target text, audit_request_id text)
    RETURNS integer
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    outcome_bytes bigint := coalesce(octet_length(outcome_body) + pg_column_size(outcome_headers), 0);
    decided_at timestamptz;
    scope_records integer;
    scope_bytes bigint;
    may_have_expired boolean;
BEGIN
    IF scope_tenant IS DISTINCT FROM current_setting('app.tenant_id', true) THEN
        PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    END IF;
    IF NOT pg_try_advisory_xact_lock(
            coordination.advisory_lock_id('idempotency-scope', scope_tenant || ' ' || scope_principal)) THEN
        PERFORM coordination.take_advisory_lock('idempotency-scope', scope_tenant || ' ' || scope_principal);
    END IF;
    decided_at := clock_timestamp();
    UPDATE coordination.idempotency_scopes s
    SET records = s.records + 1, stored_bytes = s.stored_bytes + outcome_bytes,
        next_expiry_at = least(s.next_expiry_at, decided_at + retention_seconds * interval '1 second')
    WHERE s.tenant_id = scope_tenant AND s.principal = scope_principal
    RETURNING s.records, s.stored_bytes, s.next_expiry_at <= decided_at
    INTO scope_records, scope_bytes, may_have_expired;
    -- One question for all that is seldom: each expression of a routine is prepared anew in every transaction.
    IF scope_records IS NULL OR may_have_expired OR scope_records > max_records
            OR outcome_body IS NULL OR scope_bytes > max_bytes THEN
        IF scope_records IS NULL THEN
            INSERT INTO coordination.idempotency_scopes (tenant_id, principal, records, stored_bytes, next_expiry_at)
            VALUES (
                scope_tenant, scope_principal, 1, outcome_bytes,
                decided_at + retention_seconds * interval '1 second')
            RETURNING records, stored_bytes INTO scope_records, scope_bytes;
        ELSIF may_have_expired THEN
            SELECT left_over.records, left_over.stored_bytes INTO scope_records, scope_bytes
            FROM coordination.prune_records(
                scope_tenant, scope_principal, decided_at, decided_at + retention_seconds * interval '1 second')
                AS left_over;
        END IF;
        IF scope_records > max_records THEN
            PERFORM coordination.raise_scope_is_full(scope_tenant, scope_principal, decided_at);
        END IF;
        IF outcome_body IS NULL OR scope_bytes > max_bytes THEN
            UPDATE coordination.idempotency_scopes s SET stored_bytes = s.stored_bytes - outcome_bytes
            WHERE s.tenant_id = scope_tenant AND s.principal = scope_principal;
            outcome_headers := NULL;
            outcome_body := NULL;
            outcome_bytes := 0;
        END IF;
    END IF;
    WITH noted AS (
        INSERT INTO coordination.audit_events (principal, project, operation, outcome, target, request_id)
        VALUES (scope_principal, scope_tenant, operation_id, audit_outcome, audit_target, audit_request_id))
    INSERT INTO coordination.idempotency_records (
        tenant_id, principal, key_sha256, id, operation, fingerprint, state, claimed_at, completed_at, expires_at,
        status, headers, body, stored_bytes)
    VALUES (
        scope_tenant, scope_principal, key_digest, NULL, operation_id, request_fingerprint,
        CASE WHEN outcome_body IS NULL THEN 'tombstone' ELSE 'completed' END, decided_at, decided_at,
        decided_at + retention_seconds * interval '1 second', outcome_status, outcome_headers, outcome_body,
        outcome_bytes);
    RETURN max_records - scope_records;
END
$$;

-- Deletes what has expired in one scope and notes when the next of it does: of what is left, and of a record that the
-- caller is about to write (new_expires_at; 'infinity' for none). Returns what the scope holds after it. The caller holds
-- the scope's lock.
CREATE FUNCTION coordination.prune_records(
    scope_tenant text, scope_principal text, decided_at timestamptz, new_expires_at timestamptz,
    OUT records integer, OUT stored_bytes bigint)
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    DELETE FROM coordination.idempotency_records r
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.expires_at <= decided_at
      AND r.stored_bytes >= 0;
    UPDATE coordination.idempotency_scopes s
    SET next_expiry_at = least(new_expires_at, (
        SELECT min(r.expires_at) FROM coordination.idempotency_records r
        WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.stored_bytes >= 0))
    WHERE s.tenant_id = scope_tenant AND s.principal = scope_principal
    RETURNING s.records, s.stored_bytes INTO prune_records.records, prune_records.stored_bytes;
END
$$;

-- Raises EW103; DETAIL holds the whole seconds until the scope's next expiry.
CREATE FUNCTION coordination.raise_scope_is_full(scope_tenant text, scope_principal text, decided_at timestamptz)
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    RAISE EXCEPTION 'the scope is full' USING ERRCODE = 'EW103', DETAIL = (
        SELECT greatest(1, ceil(extract(epoch FROM min(r.expires_at) - decided_at)))::bigint::text
        FROM coordination.idempotency_records r
        WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.stored_bytes >= 0);
END
$$;

-- Counts deleted records off their scopes, whoever deletes them. Inserted ones are counted by the routines that insert,
-- which need the count anyhow.
CREATE FUNCTION coordination.count_deleted_records()
    RETURNS trigger
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    UPDATE coordination.idempotency_scopes s
    SET records = s.records - gone.records, stored_bytes = s.stored_bytes - gone.stored_bytes
    FROM (
        SELECT d.tenant_id, d.principal, count(*) AS records, sum(d.stored_bytes) AS stored_bytes
        FROM deleted d GROUP BY d.tenant_id, d.principal) gone
    WHERE s.tenant_id = gone.tenant_id AND s.principal = gone.principal;
    RETURN NULL;
END
$$;

-- Counts a record's bytes anew when they change, and notes when it expires earlier.
CREATE FUNCTION coordination.follow_changed_record()
    RETURNS trigger
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    UPDATE coordination.idempotency_scopes s
    SET stored_bytes = s.stored_bytes + NEW.stored_bytes - OLD.stored_bytes,
        next_expiry_at = least(s.next_expiry_at, NEW.expires_at)
    WHERE s.tenant_id = NEW.tenant_id AND s.principal = NEW.principal;
    RETURN NULL;
END
$$;

CREATE TRIGGER count_deleted AFTER DELETE ON coordination.idempotency_records
    REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION coordination.count_deleted_records();
CREATE TRIGGER follow_change AFTER UPDATE OF stored_bytes, expires_at ON coordination.idempotency_records
    FOR EACH ROW WHEN (OLD.stored_bytes <> NEW.stored_bytes OR NEW.expires_at < OLD.expires_at)
    EXECUTE FUNCTION coordination.follow_changed_record();

-- 64-bit id of a transaction-level advisory lock: PostgreSQL's own hash of namespace, blank and name. docs/locks.md lists
-- the namespaces, which have no blank in them. Two names that meet in one id wait for each other, nothing worse.
CREATE FUNCTION coordination.advisory_lock_id(namespace text, name text)
    RETURNS bigint
    LANGUAGE sql
    IMMUTABLE
    STRICT
    PARALLEL SAFE
AS $$
    SELECT hashtextextended(namespace || ' ' || name, 0)
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
GRANT EXECUTE ON FUNCTION coordination.end_local_write(
    text, text, bytea, text, bytea, integer, jsonb, bytea, integer, integer, bigint, text, text, text)
    TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.prune_records(text, text, timestamptz, timestamptz) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.raise_scope_is_full(text, text, timestamptz) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.advisory_lock_id(text, text) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.take_advisory_lock(text, text) TO evalward_app;
