-- The schema as it is: the readable truth. It equals the sum of the migrations (tests/contract/test_schema.py proves
-- it); a migration is not complete before this file says the same. Times are instants of clock_timestamp(); `principal`
-- is key:<id>. Not run by a deployment: that applies sql/migrations/.

-- ==================== Schemas and the tenant of a transaction ======================================================

CREATE SCHEMA coordination;
CREATE SCHEMA scheduler;
CREATE SCHEMA scheduler_app;
CREATE SCHEMA packs;
CREATE SCHEMA evals;

GRANT USAGE ON SCHEMA coordination, scheduler, scheduler_app, packs, evals TO evalward_app;

-- Opens a tenant transaction: sets tenant and time-outs for this transaction only.
-- Raises when the isolation is not READ COMMITTED: caps counted under a lock need a fresh snapshot per statement,
-- and a role whose default is another isolation would over-admit.
-- Returns the tenant, so that a routine which is called with it comes after it in the same statement.
CREATE FUNCTION scheduler_app.begin_tenant(tenant text, lock_timeout_ms integer, statement_timeout_ms integer)
    RETURNS text
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    applied text;  -- an assignment computes an expression, where PERFORM runs a statement: every transaction comes here
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'no tenant given' USING ERRCODE = 'EW001';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'isolation is %, READ COMMITTED is needed', current_setting('transaction_isolation')
            USING ERRCODE = 'EW002';
    END IF;
    applied := set_config('lock_timeout', lock_timeout_ms::text, true)
        || set_config('statement_timeout', statement_timeout_ms::text, true)
        -- A client that dies in the middle must not hold its locks for longer than a statement may run.
        || set_config('idle_in_transaction_session_timeout', (2 * statement_timeout_ms)::text, true);
    RETURN set_config('app.tenant_id', tenant, true);
END
$$;

-- What a policy comes to in a transaction that set no tenant: an error.
CREATE FUNCTION scheduler_app.raise_no_tenant()
    RETURNS text
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'no tenant is set in this transaction' USING ERRCODE = 'EW001';
END
$$;

-- The tenant of this transaction. Row policies call it: a transaction that set no tenant fails instead of seeing
-- nothing. (After a transaction the setting reads '' rather than NULL: both are refused.) SQL, so that it becomes part of
-- the statement whose policy it serves: a call would cost as much as looking up the row.
CREATE FUNCTION scheduler_app.require_current_tenant()
    RETURNS text
    LANGUAGE sql
    STABLE
AS $$
    SELECT coalesce(nullif(current_setting('app.tenant_id', true), ''), scheduler_app.raise_no_tenant())
$$;

-- Raises when a routine is called for another tenant than the one of this transaction.
CREATE FUNCTION scheduler_app.raise_unless_tenant(tenant text)
    RETURNS void
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    IF tenant IS DISTINCT FROM scheduler_app.require_current_tenant() THEN
        RAISE EXCEPTION 'the tenant asked for is not the tenant of this transaction' USING ERRCODE = 'EW003';
    END IF;
END
$$;

REVOKE ALL ON FUNCTION scheduler_app.begin_tenant(text, integer, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.raise_no_tenant() FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.require_current_tenant() FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.raise_unless_tenant(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.begin_tenant(text, integer, integer) TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.raise_no_tenant() TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.require_current_tenant() TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.raise_unless_tenant(text) TO evalward_app;

-- For what is only done again when a crash of the server loses it (a mark, a deletion): the transaction's COMMIT answers
-- before the disk does.
CREATE FUNCTION scheduler_app.commit_without_waiting()
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.commit_without_waiting() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.commit_without_waiting() TO evalward_app;

-- Ledger of applied migrations; made by the migrator before the first one.
CREATE TABLE coordination.schema_migrations (
    number integer PRIMARY KEY,  -- number of the file
    name text NOT NULL,  -- verb_object
    sha256 text NOT NULL,  -- of the file, 64 hex digits: an applied file that changes stops the migrator
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- ==================== coordination: projects, keys, audit, leases, wake-ups, idempotency ===========================

-- Projects: the tenants.
CREATE TABLE coordination.projects (
    id text PRIMARY KEY CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),  -- the tenant id everywhere
    description text NOT NULL DEFAULT '' CHECK (length(description) <= 1000),  -- for people
    max_stored_runs integer CHECK (max_stored_runs > 0),  -- quota: runs, whatever their state; NULL is no limit
    -- quota: bytes of published datasets and open reservations; NULL is no limit
    max_dataset_bytes bigint CHECK (max_dataset_bytes > 0),
    -- age at which ended runs go, as sent (720h, 30d, P30D; '0' keeps for ever); NULL: the deployment's
    run_retention text,
    paused boolean NOT NULL DEFAULT false,  -- no work is dispatched; writes are taken
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()  -- of the last PATCH
);

-- API keys. Global: no tenant is known before one is found.
CREATE TABLE coordination.api_keys (
    id text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{16}$'),  -- 16 hex digits; the principal is key:<id>
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),  -- for people
    -- SHA-256 over the 64 hex digits of the secret; the secret itself is stored nowhere
    secret_sha256 bytea NOT NULL CHECK (octet_length(secret_sha256) = 32),
    grants jsonb NOT NULL,  -- [{project, role | permissions}]
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal, or 'deployment'
    expires_at timestamptz  -- stops working then; NULL is never
);

-- Who did, or was refused, what. Insert and read only.
CREATE TABLE coordination.audit_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- order of insertion
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    principal text NOT NULL,  -- key:<id>
    project text NOT NULL,  -- project id, or '-' for the installation
    operation text NOT NULL,  -- operation id
    outcome text NOT NULL CHECK (outcome IN ('allowed', 'denied', 'reconciled')),
    target text NOT NULL DEFAULT '',  -- what it was done to, '' when the operation says it
    request_id text NOT NULL  -- the gateway's id of the request
);
CREATE INDEX audit_events_by_project ON coordination.audit_events (project, id DESC);

-- Who works on what, until when. A row outlives its lease, so that the epoch only grows.
CREATE TABLE coordination.leases (
    name text PRIMARY KEY,  -- <kind>:<project>:<ref_id>, or the name of a singleton
    owner uuid,  -- random per taking; NULL when free
    epoch bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0),  -- grows with every taking, survives release
    expires_at timestamptz,  -- a later writer may take it from then on
    CHECK ((owner IS NULL) = (expires_at IS NULL))
);

-- The outbox and the due index of all asynchronous work. Holds no payload.
CREATE TABLE coordination.wake_ups (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    queue text NOT NULL CHECK (queue IN ('conversion', 'evaluation', 'delivery', 'pull')),  -- which function is woken
    project text NOT NULL,
    kind text NOT NULL,  -- what ref_id names: import, run, shard
    ref_id text NOT NULL,  -- the row that holds the work
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),  -- not to be sent before
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- how often the pulse has sent it
    sent_at timestamptz,  -- last sending; NULL: the pulse sends it when due
    UNIQUE (project, kind, ref_id)
);
CREATE INDEX wake_ups_by_due ON coordination.wake_ups (due_at, id);
-- The pulse of sources looks at nothing else: idle sources cost one look at this index.
CREATE INDEX wake_ups_of_sources ON coordination.wake_ups (due_at, id) WHERE kind = 'source_tick';

-- Whether a message is to be sent for work that is due: nobody is at it, and it is unsent, or its worker died, or it was
-- sent `resend_after` ago and taken up by nobody. expires_at: of its lease, NULL when it has none. Volatile, as its clock
-- is, and still SQL that becomes part of the statement which calls it.
CREATE FUNCTION scheduler_app.is_to_be_sent(sent_at timestamptz, expires_at timestamptz, resend_after interval)
    RETURNS boolean
    LANGUAGE sql
    VOLATILE
AS $$
    SELECT (expires_at IS NULL OR expires_at <= clock_timestamp())
       AND (sent_at IS NULL OR expires_at > sent_at OR sent_at <= clock_timestamp() - resend_after)
$$;
REVOKE ALL ON FUNCTION scheduler_app.is_to_be_sent(timestamptz, timestamptz, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.is_to_be_sent(timestamptz, timestamptz, interval) TO evalward_app;

-- Leads, marks up to `batch` sources that are due and to be sent as sent and returns them. Raises EW201 when another pulse
-- leads: it holds the lease, or is between its claim and its commit, for which nobody waits. The lease is given back as it
-- is taken, with a new epoch: its row keeps others away until the commit, which does not wait for the disk, since a mark
-- that a crash loses is a message sent twice and a pull does not mind. One indexed query whatever the number of sources: an
-- index takes no volatile function, so due is what is due when the statement begins; what another leader has marked since
-- then is seen when the row is locked. Locks: the lease's row, then the wake-ups' rows, skipping all that somebody holds.
CREATE FUNCTION scheduler_app.claim_due_sources(leader_lease text, batch integer, resend_after interval)
    RETURNS TABLE (queue text, kind text, project text, ref_id text)
    LANGUAGE plpgsql
    VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
AS $$
DECLARE
    is_leader boolean;
BEGIN
    PERFORM scheduler_app.commit_without_waiting();
    UPDATE coordination.leases l
    SET epoch = l.epoch + 1, owner = NULL, expires_at = NULL
    FROM (
        SELECT f.name FROM coordination.leases f
        WHERE f.name = leader_lease AND (f.expires_at IS NULL OR f.expires_at <= clock_timestamp())
        FOR UPDATE SKIP LOCKED) free
    WHERE l.name = free.name;
    IF NOT FOUND THEN
        -- The first pulse of all has no row to lead by. Looked for before: an insert waits for whoever holds the row, and
        -- so does one beside another first pulse, at most the transaction's lock_timeout.
        BEGIN
            INSERT INTO coordination.leases (name, epoch)
            SELECT leader_lease, 1 WHERE NOT EXISTS (SELECT 1 FROM coordination.leases f WHERE f.name = leader_lease)
            ON CONFLICT (name) DO NOTHING;
            is_leader := FOUND;
        EXCEPTION WHEN lock_not_available THEN
            is_leader := false;
        END;
        IF NOT is_leader THEN
            RAISE EXCEPTION 'another pulse leads' USING ERRCODE = 'EW201';
        END IF;
    END IF;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT w.id
        FROM coordination.wake_ups w
        LEFT JOIN coordination.leases l ON l.name = w.kind || ':' || w.project || ':' || w.ref_id
        WHERE w.kind = 'source_tick' AND w.due_at <= statement_timestamp()
          AND scheduler_app.is_to_be_sent(w.sent_at, l.expires_at, resend_after)
        ORDER BY w.due_at, w.id
        LIMIT batch
        FOR UPDATE OF w SKIP LOCKED
    )
    UPDATE coordination.wake_ups w
    SET sent_at = clock_timestamp(), attempts = w.attempts + 1
    FROM due
    WHERE w.id = due.id
    RETURNING w.queue, w.kind, w.project, w.ref_id;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.claim_due_sources(text, integer, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.claim_due_sources(text, integer, interval) TO evalward_app;

-- Scopes that hold records: the hourly pass finds them here without a tenant, and a keyed write finds its count here
-- without reading up to 1024 records. Exact, since whoever changes it holds the scope's lock.
CREATE TABLE coordination.idempotency_scopes (
    tenant_id text NOT NULL,  -- project id, or '-'
    principal text NOT NULL,  -- key:<id>
    records integer NOT NULL DEFAULT 0,  -- count of its records, those not yet pruned included
    stored_bytes bigint NOT NULL DEFAULT 0,  -- sum of theirs
    next_expiry_at timestamptz NOT NULL DEFAULT 'infinity',  -- none of them expires before: there is nothing to prune
    PRIMARY KEY (tenant_id, principal)
);

-- One key of a scope: a claim, an outcome, or a tombstone.
CREATE TABLE coordination.idempotency_records (
    tenant_id text NOT NULL,  -- project id, or '-' for installation-wide routes
    principal text NOT NULL,  -- with tenant_id the scope in which caps count
    -- SHA-256 of the key; the key itself is stored nowhere
    key_sha256 bytea NOT NULL,
    id uuid DEFAULT gen_random_uuid(),  -- names a claim in the API; NULL where nothing was ever claimed
    operation text NOT NULL,  -- operation id
    fingerprint bytea NOT NULL,  -- SHA-256 of the request as it was understood
    -- claimed: no outcome yet; tombstone: happened, answer not kept
    state text NOT NULL,
    owner_token uuid,  -- remote mode: random per claim; complete and release match it
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline_at timestamptz,  -- remote mode: the owner's deadline; in progress before, uncertain after
    completed_at timestamptz,
    expires_at timestamptz NOT NULL,  -- no longer live from then on
    status smallint,  -- HTTP status of the answer
    headers jsonb,  -- allow-listed headers, lower-case names
    body bytea,  -- bytes of the answer, without secrets
    -- bytes that count against the cap: of the answer, or reserved by a claim
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

-- ==================== packs: datasets ==============================================================================

-- Dataset versions. Custody: never swept; a version goes only when someone deletes its dataset.
CREATE TABLE packs.packs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    version integer NOT NULL CHECK (version >= 1),  -- 1, 2, 3 … per name
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),  -- of the canonical object
    path text NOT NULL,  -- key of the canonical object in the bucket
    records integer NOT NULL CHECK (records > 0),  -- count
    bytes bigint NOT NULL CHECK (bytes > 0),  -- size of the canonical object
    source text NOT NULL,  -- 'upload', or the s3:// address it was imported from
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name, version)
);
CREATE INDEX packs_by_sha256 ON packs.packs (tenant_id, sha256, created_at DESC);
CREATE INDEX packs_by_age ON packs.packs (tenant_id, created_at DESC, id DESC);

ALTER TABLE packs.packs ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.packs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON packs.packs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON packs.packs TO evalward_app;

-- ==================== scheduler: completed mechanics, swept when their time has come ===============================

-- Units of asynchronous work that end: imports, deliveries, exports of sinks.
CREATE TABLE scheduler.jobs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    kind text NOT NULL CHECK (kind IN ('dataset_import', 'webhook_delivery', 'sink_export')),
    state text NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'canceled', 'timed_out')),
    dedupe_key text NOT NULL,  -- tells the same cause delivered twice
    payload jsonb NOT NULL,  -- what to do; for an import an ImportOrder
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- begun so far
    result jsonb,  -- what it made; for an import the Dataset
    error jsonb,  -- why it failed: code, detail, errors
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal, or the bucket's notification
    started_at timestamptz,  -- of the first attempt
    completed_at timestamptz,  -- when it reached a terminal state
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, kind, dedupe_key)
);
CREATE INDEX jobs_by_age ON scheduler.jobs (tenant_id, kind, created_at DESC, id DESC);

-- Dispatch of runs, one row a run. No foreign key to runs: it may be swept.
CREATE TABLE scheduler.estate_run_queue (
    tenant_id text NOT NULL,
    id uuid NOT NULL,  -- the run
    queued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    acknowledged_at timestamptz,  -- taken up by planning
    completed_at timestamptz,
    outcome text CHECK (outcome IN ('succeeded', 'failed', 'error', 'cancelled')),  -- the run's terminal state
    PRIMARY KEY (tenant_id, id),
    CHECK ((completed_at IS NULL) = (outcome IS NULL))
);

-- Shards: contiguous slices of a snapshot. No foreign key to runs: they may be swept.
CREATE TABLE scheduler.policy_run_jobs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    run_id uuid NOT NULL,
    shard_no integer NOT NULL CHECK (shard_no >= 0),  -- 0, 1, 2 …
    first_record integer NOT NULL CHECK (first_record >= 0),  -- records before it in the snapshot
    records integer NOT NULL CHECK (records > 0),  -- count, at most 1000
    byte_start bigint NOT NULL CHECK (byte_start >= 0),  -- first byte in the canonical object
    byte_end bigint NOT NULL,  -- first byte after it
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- begun so far
    error text,  -- why it was given up, for people
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, run_id, shard_no),
    CHECK (byte_end > byte_start)
);

-- When a source ticks. One row a source; a retired one stays. Custody.
CREATE TABLE scheduler.schedules (
    tenant_id text NOT NULL,
    id text NOT NULL CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    cron text NOT NULL CHECK (length(cron) <= 200),  -- as it was written
    cron_sets jsonb NOT NULL,  -- CronSets: what it means, whatever a library thinks today
    grammar_version integer NOT NULL CHECK (grammar_version >= 1),  -- of the grammar that read it
    cursor_at timestamptz NOT NULL DEFAULT clock_timestamp(),  -- ticks up to here are decided
    paused boolean NOT NULL DEFAULT false,
    retired_at timestamptz,  -- NULL while in use
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

-- One tick that was worked on. Operational: swept when it has ended.
CREATE TABLE scheduler.runs (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    schedule_id text NOT NULL,
    tick_at timestamptz NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'planning'
        CHECK (state IN ('planning', 'queued', 'running', 'completed', 'error', 'cancelled')),
    evaluation_id uuid,  -- the run of evals.runs that was made of it
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, schedule_id) REFERENCES scheduler.schedules (tenant_id, id),
    CHECK (window_start < window_end)
);
CREATE INDEX runs_by_schedule ON scheduler.runs (tenant_id, schedule_id, created_at DESC, id DESC);
CREATE UNIQUE INDEX runs_in_planning ON scheduler.runs (tenant_id, schedule_id, tick_at) WHERE state = 'planning';
CREATE UNIQUE INDEX runs_by_evaluation ON scheduler.runs (tenant_id, evaluation_id) WHERE evaluation_id IS NOT NULL;

-- The assembly of one window's traces into a snapshot; its id is that of its tick. Operational: swept when it has ended.
CREATE TABLE scheduler.graph_jobs (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    schedule_id text NOT NULL,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'completed', 'failed', 'canceled')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    traces integer,  -- count; NULL until read
    snapshot_bytes bigint,  -- size after redaction; NULL for an empty window
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

-- Why work failed: failures of the same kind and the same normalized error are one row. Operational: swept when resolved.
CREATE TABLE scheduler.failure_signatures (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    signature text NOT NULL CHECK (signature ~ '^[0-9a-f]{64}$'),  -- SHA-256 of kind, work and normalized error
    kind text NOT NULL CHECK (length(kind) BETWEEN 1 AND 100),  -- what failed: shard, sink, import, webhook, pull
    work text NOT NULL CHECK (length(work) BETWEEN 1 AND 300),  -- which work: what succeeds later resolves it
    error text NOT NULL CHECK (length(error) <= 2000),  -- normalized: numbers, ids and hexadecimal digits taken out
    sample text NOT NULL DEFAULT '' CHECK (length(sample) <= 2000),  -- the last error as it was told, without secrets
    state text NOT NULL DEFAULT 'unresolved' CHECK (state IN ('unresolved', 'investigating', 'resolved', 'wont_fix')),
    occurrence_count bigint NOT NULL DEFAULT 1 CHECK (occurrence_count >= 1),
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    resolved_at timestamptz,  -- when it was resolved; what fails again is unresolved again
    resolved_by text,  -- principal, or 'work' when the work succeeded later
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, signature)
);
CREATE INDEX failure_signatures_by_age ON scheduler.failure_signatures (tenant_id, last_seen_at DESC, id DESC);
CREATE INDEX failure_signatures_open ON scheduler.failure_signatures (tenant_id, kind, work)
    WHERE state IN ('unresolved', 'investigating');

-- What causes work: one row a cause, kept up to date in place. Custody. Its latest job is kept for it.
CREATE TABLE scheduler.triggers (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    kind text NOT NULL CHECK (kind IN ('source', 'incoming_prefix', 'route')),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 1000),  -- id of the source, prefix in the bucket, operation id
    last_job_id uuid,  -- latest job it caused; NULL while it caused none
    job_count bigint NOT NULL DEFAULT 0 CHECK (job_count >= 0),  -- jobs it caused
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_job_at timestamptz,  -- when it caused the latest
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, kind, name),
    FOREIGN KEY (tenant_id, last_job_id) REFERENCES scheduler.jobs (tenant_id, id)
);
CREATE INDEX triggers_by_job ON scheduler.triggers (tenant_id, last_job_id);

-- Outcomes of jobs that were swept. Goes after a window of its own.
CREATE TABLE scheduler.job_history (
    tenant_id text NOT NULL,
    id uuid NOT NULL,  -- of the job
    kind text NOT NULL,
    state text NOT NULL CHECK (state IN ('succeeded', 'failed', 'canceled', 'timed_out')),
    dedupe_key text NOT NULL,
    attempts integer NOT NULL,
    result jsonb,
    error jsonb,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    started_at timestamptz,
    completed_at timestamptz NOT NULL,  -- its age is measured from here
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

-- Execution environments of the functions that read a queue. Global. Operational: swept when stopped and idle.
CREATE TABLE scheduler.workers (
    id uuid PRIMARY KEY,  -- random per environment
    function text NOT NULL CHECK (length(function) BETWEEN 1 AND 200),  -- name of the function
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'draining', 'stopped')),
    active_count integer NOT NULL DEFAULT 0 CHECK (active_count >= 0),  -- invocations under way; busy when > 0
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),  -- first heartbeat
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),  -- last start or end of an invocation
    stopped_at timestamptz
);

ALTER TABLE scheduler.jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.estate_run_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.estate_run_queue FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.estate_run_queue
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.policy_run_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.policy_run_jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.policy_run_jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.jobs, scheduler.estate_run_queue, scheduler.policy_run_jobs
    TO evalward_app;

ALTER TABLE scheduler.schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.schedules FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.schedules
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.runs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.graph_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.graph_jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.graph_jobs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.failure_signatures ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.failure_signatures FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.failure_signatures
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.triggers ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.triggers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.triggers
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE scheduler.job_history ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler.job_history FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduler.job_history
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON scheduler.schedules, scheduler.runs, scheduler.graph_jobs,
    scheduler.failure_signatures, scheduler.triggers, scheduler.job_history, scheduler.workers TO evalward_app;

-- ==================== evals: runs ==================================================================================

-- Runs: one evaluation of a snapshot of records each.
CREATE TABLE evals.runs (
    tenant_id text NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),  -- for people
    -- the last four are terminal
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'error', 'cancelled')),
    dataset_name text,  -- pinned at creation; NULL for the run of a source
    dataset_version integer,
    config jsonb NOT NULL,  -- RunConfig, complete: defaults applied
    config_sha256 text NOT NULL CHECK (config_sha256 ~ '^[0-9a-f]{64}$'),  -- of its canonical JSON
    records_total integer NOT NULL CHECK (records_total > 0),  -- records of the snapshot
    records_done integer NOT NULL DEFAULT 0,  -- records whose results are all written
    shards_total integer,  -- NULL until planned
    shards_done integer NOT NULL DEFAULT 0,  -- counted in the shard's completing transaction
    results_scored integer NOT NULL DEFAULT 0,  -- count of results
    results_skipped integer NOT NULL DEFAULT 0,
    results_errors integer NOT NULL DEFAULT 0,
    input_tokens bigint,  -- sum over records that tell; NULL when none does
    output_tokens bigint,
    cost_usd double precision,
    report jsonb,  -- summaries, gates; NULL until finished
    error jsonb,  -- RunFailure: why it could not finish
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal
    started_at timestamptz,  -- when it was planned
    finished_at timestamptz,  -- when it reached a terminal state
    source_id text,  -- the source it was made by; NULL for the run of a dataset
    window_start timestamptz,  -- of the source's window, inclusive
    window_end timestamptz,  -- exclusive
    slices text[] NOT NULL DEFAULT '{}',  -- metadata keys that the report is sliced by
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT runs_origin_check CHECK (
        num_nonnulls(dataset_name, source_id) = 1 AND (dataset_name IS NULL) = (dataset_version IS NULL)
        AND num_nonnulls(source_id, window_start, window_end) IN (0, 3)),
    CHECK (records_done <= records_total),
    CHECK (shards_done <= shards_total),
    CHECK ((finished_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'error', 'cancelled')))
);
CREATE INDEX runs_by_age ON evals.runs (tenant_id, created_at DESC, id DESC);
CREATE INDEX runs_by_state ON evals.runs (tenant_id, state, created_at DESC, id DESC);
CREATE INDEX runs_by_source ON evals.runs (tenant_id, source_id, created_at DESC, id DESC) WHERE source_id IS NOT NULL;

-- Labels are rows: a GIN index is not used under row-level security.
CREATE TABLE evals.run_labels (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 100),
    value text NOT NULL CHECK (length(value) <= 200),
    PRIMARY KEY (tenant_id, run_id, key),
    FOREIGN KEY (tenant_id, run_id) REFERENCES evals.runs (tenant_id, id)
);
CREATE INDEX run_labels_by_value ON evals.run_labels (tenant_id, key, value, run_id);

-- The records a run evaluates, fixed at creation; nothing is copied.
CREATE TABLE evals.run_snapshots (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),  -- of the object
    path text NOT NULL,  -- key of the object in the bucket
    records integer NOT NULL CHECK (records > 0),  -- count
    bytes bigint NOT NULL CHECK (bytes > 0),  -- size of the object
    redactions jsonb NOT NULL DEFAULT '{}',  -- replacements by kind, for the snapshot of a source
    excluded_trace_ids text[] NOT NULL DEFAULT '{}',  -- traces that were passed over by request
    PRIMARY KEY (tenant_id, run_id),
    FOREIGN KEY (tenant_id, run_id) REFERENCES evals.runs (tenant_id, id)
);
CREATE INDEX run_snapshots_by_sha256 ON evals.run_snapshots (tenant_id, sha256);

-- No foreign key to runs: the trigger it brings costs one look-up a row, 300,000 for a run of 100,000 records. The
-- transaction that writes results updates the run's counts, so it cannot commit for a run that is gone.
CREATE TABLE evals.run_results (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    record_no integer NOT NULL CHECK (record_no >= 0),  -- place in the snapshot, from 0
    trial smallint NOT NULL CHECK (trial >= 1),  -- from 1
    evaluator text NOT NULL,  -- the evaluator's id in the run
    record text NOT NULL,  -- the record's id
    status text NOT NULL CHECK (status IN ('scored', 'skipped', 'error')),
    score double precision,  -- in the evaluator's own range; NULL unless scored
    passed boolean,  -- for pass/fail evaluators
    error text,  -- why it was skipped or failed
    PRIMARY KEY (tenant_id, run_id, record_no, trial, evaluator),
    CHECK ((status = 'scored') = (score IS NOT NULL))
);

ALTER TABLE evals.runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.runs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.run_labels ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_labels FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_labels
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.run_snapshots ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_snapshots FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_snapshots
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.run_results ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_results FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_results
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.runs, evals.run_labels, evals.run_snapshots, evals.run_results
    TO evalward_app;

-- ==================== coordination: remote keyed writes ============================================================

-- Claims a key before a remote effect, in a transaction of its own: prunes the scope, counts it under its lock, inserts
-- the claim with its owner's token and deadline, and reserves the bytes that its answer may take.
-- Raises EW101 when another call is about to claim or write the key, EW102 when a live record exists, EW103 at a cap
-- (DETAIL: whole seconds until the scope's next expiry). Returns the records left in the scope.
CREATE FUNCTION coordination.claim_remote_write(
    scope_tenant text, scope_principal text, key_digest bytea, operation_id text, request_fingerprint bytea,
    token uuid, owner_ms bigint, retention interval, max_records integer, max_bytes bigint, reserved_bytes bigint)
    RETURNS integer
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    decided_at timestamptz;
    scope_records integer;
    scope_bytes bigint;
BEGIN
    PERFORM coordination.claim_local_write(scope_tenant, scope_principal, key_digest);
    PERFORM pg_advisory_xact_lock(
        coordination.advisory_lock_id('idempotency-scope', scope_tenant || ' ' || scope_principal));
    decided_at := clock_timestamp();
    PERFORM coordination.prune_records(scope_tenant, scope_principal, decided_at, decided_at + retention);
    INSERT INTO coordination.idempotency_scopes AS s (tenant_id, principal, records, stored_bytes, next_expiry_at)
    VALUES (scope_tenant, scope_principal, 1, reserved_bytes, decided_at + retention)
    ON CONFLICT (tenant_id, principal) DO UPDATE
    SET records = s.records + 1, stored_bytes = s.stored_bytes + excluded.stored_bytes
    RETURNING s.records, s.stored_bytes INTO scope_records, scope_bytes;
    IF scope_records > max_records OR scope_bytes > max_bytes THEN
        PERFORM coordination.raise_scope_is_full(scope_tenant, scope_principal, decided_at);
    END IF;
    INSERT INTO coordination.idempotency_records (
        tenant_id, principal, key_sha256, operation, fingerprint, state, owner_token, claimed_at, deadline_at,
        expires_at, stored_bytes)
    VALUES (
        scope_tenant, scope_principal, key_digest, operation_id, request_fingerprint, 'claimed', token, decided_at,
        decided_at + make_interval(secs => owner_ms / 1000.0), decided_at + retention, reserved_bytes);
    RETURN max_records - scope_records;
END
$$;

-- Completes a claim of this owner with its outcome; one without a body, which was too large, becomes a tombstone.
-- Raises EW104, having changed nothing, for another token or when the claim was resolved meanwhile: so it can travel
-- with the COMMIT, and the effect's rows go with the outcome or not at all.
CREATE FUNCTION coordination.complete_remote_write(
    scope_tenant text, scope_principal text, key_digest bytea, token uuid, outcome_status integer,
    outcome_headers jsonb, outcome_body bytea, retention_seconds integer, max_bytes bigint)
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    other_bytes bigint;
    outcome_bytes bigint := coalesce(octet_length(outcome_body) + pg_column_size(outcome_headers), 0);
    is_kept boolean;
    completed timestamptz;
BEGIN
    PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    PERFORM pg_advisory_xact_lock(
        coordination.advisory_lock_id('idempotency-scope', scope_tenant || ' ' || scope_principal));
    SELECT s.stored_bytes - r.stored_bytes INTO other_bytes
    FROM coordination.idempotency_records r
    JOIN coordination.idempotency_scopes s ON s.tenant_id = r.tenant_id AND s.principal = r.principal
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.key_sha256 = key_digest;
    is_kept := outcome_body IS NOT NULL AND other_bytes + outcome_bytes <= max_bytes;
    completed := clock_timestamp();
    UPDATE coordination.idempotency_records r
    SET state = CASE WHEN is_kept THEN 'completed' ELSE 'tombstone' END, completed_at = completed,
        expires_at = completed + make_interval(secs => retention_seconds), status = outcome_status,
        headers = CASE WHEN is_kept THEN outcome_headers END, body = CASE WHEN is_kept THEN outcome_body END,
        stored_bytes = CASE WHEN is_kept THEN outcome_bytes ELSE 0 END
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.key_sha256 = key_digest
      AND r.state = 'claimed' AND r.owner_token = token;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the claim is not of this owner' USING ERRCODE = 'EW104';
    END IF;
END
$$;

-- Waits until no transaction holds the key: what a transaction whose answer was lost did with it can be seen by the
-- next statement. At most the transaction's lock_timeout; the lock is held until the transaction ends.
CREATE FUNCTION coordination.wait_for_key(scope_tenant text, scope_principal text, key_digest bytea)
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    PERFORM pg_advisory_xact_lock(coordination.advisory_lock_id(
        'idempotency-key', scope_tenant || ' ' || scope_principal || ' ' || encode(key_digest, 'hex')));
END
$$;

-- How many live records a scope holds: its count without those that have expired and are not pruned yet.
CREATE FUNCTION coordination.count_live_records(scope_tenant text, scope_principal text)
    RETURNS integer
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    RETURN coalesce((
        SELECT s.records - (
            SELECT count(*)::integer FROM coordination.idempotency_records r
            WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.expires_at <= clock_timestamp()
              AND r.stored_bytes >= 0)
        FROM coordination.idempotency_scopes s
        WHERE s.tenant_id = scope_tenant AND s.principal = scope_principal), 0);
END
$$;

-- Who calls with which key, and what is known of the Idempotency-Key, if there is one: one row, none when the API key is
-- unknown. It sets the tenant for its own statement's transaction, so that a keyed call is opened in one statement, like
-- any other; it writes nothing, and so it serves under any isolation. Its plans are kept for the session, where the same
-- statements sent as text would be planned at each call. `state` and what belongs to a record are NULL when there is no
-- live one, and so is `records`, the count of the scope: a write that runs counts for itself.
CREATE FUNCTION coordination.open_call(
    caller_id text, caller_secret_sha256 bytea, named_project text, scope_tenant text, key_digest bytea)
    RETURNS TABLE (
        caller text, caller_name text, grants jsonb, is_expired boolean, project text, records integer,
        id uuid, operation text, fingerprint bytea, state text, status smallint, headers jsonb, body bytea,
        claimed_at timestamptz, deadline_seconds bigint)
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    applied text;
    expires timestamptz;
BEGIN
    SELECT k.id, k.name, k.grants, k.expires_at <= clock_timestamp(), p.id
    INTO caller, caller_name, grants, is_expired, project
    FROM coordination.api_keys k
    LEFT JOIN coordination.projects p ON p.id = named_project
    WHERE k.id = caller_id AND k.secret_sha256 = caller_secret_sha256;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF key_digest IS NOT NULL THEN
        applied := set_config('app.tenant_id', scope_tenant, true);
        SELECT r.expires_at INTO expires
        FROM coordination.idempotency_records r
        WHERE r.tenant_id = scope_tenant AND r.principal = 'key:' || caller_id AND r.key_sha256 = key_digest;
        IF expires > clock_timestamp() THEN
            SELECT coordination.count_live_records(scope_tenant, 'key:' || caller_id),
                   r.id, r.operation, r.fingerprint, r.state, r.status, r.headers, r.body, r.claimed_at,
                   ceil(extract(epoch FROM r.deadline_at - clock_timestamp()))::bigint
            INTO records, id, operation, fingerprint, state, status, headers, body, claimed_at, deadline_seconds
            FROM coordination.idempotency_records r
            WHERE r.tenant_id = scope_tenant AND r.principal = 'key:' || caller_id AND r.key_sha256 = key_digest;
        END IF;
    END IF;
    RETURN NEXT;
END
$$;

-- Gives a claim back whose effect has not begun, under the scope's lock; nothing for another token.
CREATE FUNCTION coordination.release_claim(scope_tenant text, scope_principal text, key_digest bytea, token uuid)
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    PERFORM pg_advisory_xact_lock(
        coordination.advisory_lock_id('idempotency-scope', scope_tenant || ' ' || scope_principal));
    DELETE FROM coordination.idempotency_records r
    WHERE r.tenant_id = scope_tenant AND r.principal = scope_principal AND r.key_sha256 = key_digest
      AND r.state = 'claimed' AND r.owner_token = token;
END
$$;

-- Locks the scope of a claim before somebody resolves it: whatever changes the count of a scope holds its lock. The
-- caller's own scope is locked with it, both in the order of their ids: a keyed call locks its own at its end, and two
-- that resolve each other's claims would wait for each other. The principal of a record never changes.
CREATE FUNCTION coordination.lock_scope_of_claim(scope_tenant text, claim_id uuid, caller_principal text)
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    lock_id bigint;
BEGIN
    PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    FOR lock_id IN
        SELECT DISTINCT coordination.advisory_lock_id('idempotency-scope', scope_tenant || ' ' || p.principal)
        FROM (
            SELECT r.principal FROM coordination.idempotency_records r
            WHERE r.tenant_id = scope_tenant AND r.id = claim_id AND r.owner_token IS NOT NULL
            UNION ALL SELECT caller_principal) p
        ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(lock_id);
    END LOOP;
END
$$;

-- Deletes what has expired in one scope, under its lock, and the scope itself when nothing is left in it.
-- Returns how many records were deleted.
CREATE FUNCTION coordination.prune_scope(scope_tenant text, scope_principal text)
    RETURNS integer
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    before integer;
    after integer;
BEGIN
    PERFORM scheduler_app.raise_unless_tenant(scope_tenant);
    PERFORM pg_advisory_xact_lock(
        coordination.advisory_lock_id('idempotency-scope', scope_tenant || ' ' || scope_principal));
    SELECT s.records INTO before FROM coordination.idempotency_scopes s
    WHERE s.tenant_id = scope_tenant AND s.principal = scope_principal;
    SELECT left_over.records INTO after
    FROM coordination.prune_records(scope_tenant, scope_principal, clock_timestamp(), 'infinity') AS left_over;
    DELETE FROM coordination.idempotency_scopes s
    WHERE s.tenant_id = scope_tenant AND s.principal = scope_principal AND s.records = 0;
    RETURN coalesce(before - after, 0);
END
$$;

REVOKE ALL ON FUNCTION coordination.claim_remote_write(
    text, text, bytea, text, bytea, uuid, bigint, interval, integer, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION coordination.complete_remote_write(
    text, text, bytea, uuid, integer, jsonb, bytea, integer, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION coordination.prune_scope(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION coordination.release_claim(text, text, bytea, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION coordination.lock_scope_of_claim(text, uuid, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION coordination.count_live_records(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION coordination.wait_for_key(text, text, bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION coordination.open_call(text, bytea, text, text, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION coordination.claim_remote_write(
    text, text, bytea, text, bytea, uuid, bigint, interval, integer, bigint, bigint) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.complete_remote_write(
    text, text, bytea, uuid, integer, jsonb, bytea, integer, bigint) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.prune_scope(text, text) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.release_claim(text, text, bytea, uuid) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.lock_scope_of_claim(text, uuid, text) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.count_live_records(text, text) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.wait_for_key(text, text, bytea) TO evalward_app;
GRANT EXECUTE ON FUNCTION coordination.open_call(text, bytea, text, text, bytea) TO evalward_app;

-- ==================== evals: deletion and retention ================================================================

-- Says that a run was deleted through the API, so that a retry of the deletion is authorized and answered like the
-- first call. Holds nothing of the run but what authorization may look at; gone after 24 hours.
CREATE TABLE evals.run_tombstones (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,  -- the deleted run
    labels jsonb NOT NULL,  -- at deletion: what authorization may look at
    deleted_by text NOT NULL,  -- principal
    deleted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,  -- from then on the run is simply unknown
    PRIMARY KEY (tenant_id, run_id),
    CHECK (expires_at > deleted_at)
);
CREATE INDEX run_tombstones_by_expiry ON evals.run_tombstones (tenant_id, expires_at);

ALTER TABLE evals.run_tombstones ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_tombstones FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_tombstones
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_tombstones TO evalward_app;

-- Retention walks a project's ended runs from the oldest on.
CREATE INDEX runs_by_end ON evals.runs (tenant_id, coalesce(finished_at, created_at), id)
    WHERE state IN ('succeeded', 'failed', 'error', 'cancelled');

-- ==================== packs: uploads and removals ==================================================================

-- A promise of capacity. Custody: only its finalization or the fenced recovery ends it, never age alone.
CREATE TABLE packs.upload_reservations (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),  -- also the name of the staging object
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'finalized', 'refused', 'released')),
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),  -- of the dataset it becomes
    format text NOT NULL CHECK (format IN ('jsonl', 'parquet')),
    bytes bigint NOT NULL CHECK (bytes > 0),  -- size that was announced; counts against the quota while open
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),  -- of the file that was announced
    mapping jsonb,  -- canonical field -> JSON Pointer or column
    nul text NOT NULL CHECK (nul IN ('refuse', 'replace')),  -- what to do with NUL characters
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal
    expires_at timestamptz NOT NULL,  -- open ones are recovered from then on
    completed_at timestamptz,  -- when it left the state open
    dataset_name text,  -- what it became
    dataset_version integer,  -- what it became
    refusal jsonb,  -- why it was refused: {code, detail, errors}; answered again when it is finalized again
    PRIMARY KEY (tenant_id, id),
    CHECK ((state = 'finalized') = (dataset_version IS NOT NULL)),
    CHECK ((state = 'open') = (completed_at IS NULL))
);
CREATE INDEX upload_reservations_open ON packs.upload_reservations (tenant_id, expires_at, id) WHERE state = 'open';

-- One row per content that was ever removed. A publication reads the generation before it puts its object and again,
-- under the lock of the content, before it writes its row: a removal in between is seen, and the object put again.
CREATE TABLE packs.object_removals (
    tenant_id text NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),  -- of the content
    generation bigint NOT NULL DEFAULT 1 CHECK (generation >= 1),  -- grows with every removal
    is_removing boolean NOT NULL DEFAULT true,  -- the object is on its way out
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, sha256)
);

ALTER TABLE packs.upload_reservations ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.upload_reservations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON packs.upload_reservations
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE packs.object_removals ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.object_removals FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON packs.object_removals
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON packs.upload_reservations, packs.object_removals TO evalward_app;

-- ==================== evals, packs: webhooks and storage events ====================================================

-- An endpoint of a project. Its secret is derived from a master secret, the project, the id and the generation, and is
-- stored nowhere: a webhook that is deleted and made again has another generation, and so another secret.
CREATE TABLE evals.webhooks (
    tenant_id text NOT NULL,
    id text NOT NULL CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),  -- name, chosen by its maker
    url text NOT NULL CHECK (length(url) BETWEEN 1 AND 2000),  -- where events are posted
    events text[] NOT NULL CHECK (  -- which events it wants
        cardinality(events) > 0
        AND events <@ ARRAY['run.finished', 'run.gate_failed', 'dataset.published', 'dataset.import_failed',
                            'source.window_missed', 'ping']),
    generation bigint GENERATED ALWAYS AS IDENTITY,  -- goes into the derivation of the secret
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX webhooks_by_age ON evals.webhooks (tenant_id, created_at DESC, id DESC);

-- One event for one webhook. `id` is the webhook-id header: the same for every attempt.
CREATE TABLE evals.webhook_deliveries (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    webhook_id text NOT NULL,
    event text NOT NULL,  -- name of the event
    run_id uuid,  -- the run it tells of; deleted with it
    payload json NOT NULL,  -- what the body says
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'delivered', 'failed')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- made so far
    next_attempt_at timestamptz DEFAULT clock_timestamp(),  -- NULL when it has ended
    attempted_at timestamptz,  -- last attempt
    response_status integer,  -- HTTP status of the last attempt
    error text,  -- of the last attempt, for people
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,  -- when it was delivered or given up
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
CREATE TABLE packs.pack_storage_events (
    tenant_id text NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    event text NOT NULL CHECK (event IN ('dataset.published', 'dataset.removed')),
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),  -- of the content
    detail jsonb NOT NULL,  -- of the event on the bus
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,  -- principal
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX pack_storage_events_by_age ON packs.pack_storage_events (tenant_id, created_at DESC, id DESC);

-- A storage event on its way to EventBridge; published_at is the acknowledgement. Operational: swept after it.
CREATE TABLE packs.pack_storage_outbox (
    tenant_id text NOT NULL,
    id uuid NOT NULL,  -- the event
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- made so far
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at timestamptz,  -- NULL until EventBridge took it
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
CREATE POLICY tenant ON packs.pack_storage_events
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE packs.pack_storage_outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.pack_storage_outbox FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON packs.pack_storage_outbox
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.webhooks, evals.webhook_deliveries, packs.pack_storage_events,
    packs.pack_storage_outbox TO evalward_app;

-- ==================== scheduler: the keeper ========================================================================

-- Terminal rows by age: what the keeper walks. Active and incomplete rows: what the doctor counts.
CREATE INDEX jobs_terminal ON scheduler.jobs (tenant_id, completed_at, id)
    WHERE state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND completed_at IS NOT NULL;
CREATE INDEX jobs_active ON scheduler.jobs (tenant_id, id)
    WHERE state IN ('queued', 'running');
CREATE INDEX jobs_incomplete ON scheduler.jobs (tenant_id, id)
    WHERE state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND completed_at IS NULL;
CREATE INDEX runs_terminal ON scheduler.runs (tenant_id, finished_at, id)
    WHERE state IN ('completed', 'error', 'cancelled') AND finished_at IS NOT NULL;
CREATE INDEX runs_active ON scheduler.runs (tenant_id, id)
    WHERE state IN ('planning', 'queued', 'running');
CREATE INDEX runs_incomplete ON scheduler.runs (tenant_id, id)
    WHERE state IN ('completed', 'error', 'cancelled') AND finished_at IS NULL;
CREATE INDEX graph_jobs_terminal ON scheduler.graph_jobs (tenant_id, updated_at, id)
    WHERE state IN ('completed', 'failed', 'canceled');
CREATE INDEX graph_jobs_active ON scheduler.graph_jobs (tenant_id, id)
    WHERE state IN ('queued', 'running');
CREATE INDEX policy_run_jobs_terminal ON scheduler.policy_run_jobs (tenant_id, updated_at, id)
    WHERE state IN ('completed', 'failed', 'cancelled');
CREATE INDEX policy_run_jobs_active ON scheduler.policy_run_jobs (tenant_id, id)
    WHERE state IN ('queued', 'running');
CREATE INDEX estate_run_queue_terminal ON scheduler.estate_run_queue (tenant_id, completed_at, id)
    WHERE acknowledged_at IS NOT NULL AND outcome IS NOT NULL AND completed_at IS NOT NULL;
CREATE INDEX estate_run_queue_active ON scheduler.estate_run_queue (tenant_id, id)
    WHERE completed_at IS NULL AND outcome IS NULL;
CREATE INDEX estate_run_queue_incomplete ON scheduler.estate_run_queue (tenant_id, id)
    WHERE (completed_at IS NOT NULL OR outcome IS NOT NULL)
          AND (acknowledged_at IS NULL OR completed_at IS NULL OR outcome IS NULL);
CREATE INDEX pack_storage_outbox_terminal ON packs.pack_storage_outbox (tenant_id, published_at, id)
    WHERE published_at IS NOT NULL;
CREATE INDEX pack_storage_outbox_active ON packs.pack_storage_outbox (tenant_id, id)
    WHERE published_at IS NULL;
CREATE INDEX failure_signatures_terminal ON scheduler.failure_signatures (tenant_id, resolved_at, id)
    WHERE state = 'resolved' AND resolved_at IS NOT NULL;
CREATE INDEX failure_signatures_active ON scheduler.failure_signatures (tenant_id, id)
    WHERE state IN ('unresolved', 'investigating', 'wont_fix');
CREATE INDEX failure_signatures_incomplete ON scheduler.failure_signatures (tenant_id, id)
    WHERE state = 'resolved' AND resolved_at IS NULL;
CREATE INDEX workers_terminal ON scheduler.workers (heartbeat_at, id)
    WHERE state = 'stopped' AND active_count = 0;
CREATE INDEX workers_active ON scheduler.workers (id)
    WHERE state IN ('active', 'draining') OR active_count > 0;
CREATE INDEX job_history_terminal ON scheduler.job_history (tenant_id, completed_at, id);

-- What a tenant's terminal rows are, of each table: when they ended, and whether a lease or a trigger still needs them.
-- Plain enough to be expanded into the statements that ask. STABLE: a lease counts as live from the statement's beginning.

-- Terminal rows of scheduler.jobs.
CREATE FUNCTION scheduler_app.terminal_jobs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.completed_at, t.id, EXISTS (
               SELECT 1 FROM scheduler.triggers g WHERE g.tenant_id = t.tenant_id AND g.last_job_id = t.id)
           OR EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = CASE t.kind WHEN 'dataset_import' THEN 'import:' WHEN 'webhook_delivery' THEN 'webhook:'
                                          ELSE 'sink:' END || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
    FROM scheduler.jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND t.completed_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_jobs(text) TO evalward_app;

-- Terminal rows of scheduler.runs.
CREATE FUNCTION scheduler_app.terminal_runs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.finished_at, t.id, false
    FROM scheduler.runs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'error', 'cancelled') AND t.finished_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_runs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_runs(text) TO evalward_app;

-- Terminal rows of scheduler.graph_jobs.
CREATE FUNCTION scheduler_app.terminal_graph_jobs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.updated_at, t.id, false
    FROM scheduler.graph_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'canceled')
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_graph_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_graph_jobs(text) TO evalward_app;

-- Terminal rows of scheduler.policy_run_jobs.
CREATE FUNCTION scheduler_app.terminal_policy_run_jobs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.updated_at, t.id, EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = 'shard:' || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
    FROM scheduler.policy_run_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'cancelled')
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_policy_run_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_policy_run_jobs(text) TO evalward_app;

-- Terminal rows of scheduler.estate_run_queue.
CREATE FUNCTION scheduler_app.terminal_estate_run_queue(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.completed_at, t.id, EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = 'run:' || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
           OR EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = 'finish:' || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
    FROM scheduler.estate_run_queue t
    WHERE t.tenant_id = tenant AND t.acknowledged_at IS NOT NULL AND t.outcome IS NOT NULL AND t.completed_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_estate_run_queue(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_estate_run_queue(text) TO evalward_app;

-- Terminal rows of packs.pack_storage_outbox.
CREATE FUNCTION scheduler_app.terminal_pack_storage_outbox(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.published_at, t.id, false
    FROM packs.pack_storage_outbox t
    WHERE t.tenant_id = tenant AND t.published_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_pack_storage_outbox(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_pack_storage_outbox(text) TO evalward_app;

-- Terminal rows of scheduler.failure_signatures.
CREATE FUNCTION scheduler_app.terminal_failure_signatures(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.resolved_at, t.id, false
    FROM scheduler.failure_signatures t
    WHERE t.tenant_id = tenant AND t.state = 'resolved' AND t.resolved_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_failure_signatures(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_failure_signatures(text) TO evalward_app;

-- Terminal rows of scheduler.workers.
CREATE FUNCTION scheduler_app.terminal_workers()
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.heartbeat_at, t.id, false
    FROM scheduler.workers t
    WHERE t.state = 'stopped' AND t.active_count = 0
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_workers() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_workers() TO evalward_app;

-- Terminal rows of scheduler.job_history.
CREATE FUNCTION scheduler_app.terminal_job_history(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.completed_at, t.id, false
    FROM scheduler.job_history t
    WHERE t.tenant_id = tenant
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_job_history(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_job_history(text) TO evalward_app;

-- A tenant's rows that are not terminal, and those that say they are but lack what their end must have: never deleted.

-- Open rows of scheduler.jobs.
CREATE FUNCTION scheduler_app.open_jobs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('queued', 'running')
    UNION ALL
    SELECT true FROM scheduler.jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND t.completed_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_jobs(text) TO evalward_app;

-- Open rows of scheduler.runs.
CREATE FUNCTION scheduler_app.open_runs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.runs t
    WHERE t.tenant_id = tenant AND t.state IN ('planning', 'queued', 'running')
    UNION ALL
    SELECT true FROM scheduler.runs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'error', 'cancelled') AND t.finished_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_runs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_runs(text) TO evalward_app;

-- Open rows of scheduler.graph_jobs.
CREATE FUNCTION scheduler_app.open_graph_jobs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.graph_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('queued', 'running')
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_graph_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_graph_jobs(text) TO evalward_app;

-- Open rows of scheduler.policy_run_jobs.
CREATE FUNCTION scheduler_app.open_policy_run_jobs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.policy_run_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('queued', 'running')
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_policy_run_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_policy_run_jobs(text) TO evalward_app;

-- Open rows of scheduler.estate_run_queue.
CREATE FUNCTION scheduler_app.open_estate_run_queue(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.estate_run_queue t
    WHERE t.tenant_id = tenant AND t.completed_at IS NULL AND t.outcome IS NULL
    UNION ALL
    SELECT true FROM scheduler.estate_run_queue t
    WHERE t.tenant_id = tenant AND (t.completed_at IS NOT NULL OR t.outcome IS NOT NULL)
      AND (t.acknowledged_at IS NULL OR t.completed_at IS NULL OR t.outcome IS NULL)
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_estate_run_queue(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_estate_run_queue(text) TO evalward_app;

-- Open rows of packs.pack_storage_outbox.
CREATE FUNCTION scheduler_app.open_pack_storage_outbox(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM packs.pack_storage_outbox t
    WHERE t.tenant_id = tenant AND t.published_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_pack_storage_outbox(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_pack_storage_outbox(text) TO evalward_app;

-- Open rows of scheduler.failure_signatures.
CREATE FUNCTION scheduler_app.open_failure_signatures(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.failure_signatures t
    WHERE t.tenant_id = tenant AND t.state IN ('unresolved', 'investigating', 'wont_fix')
    UNION ALL
    SELECT true FROM scheduler.failure_signatures t
    WHERE t.tenant_id = tenant AND t.state = 'resolved' AND t.resolved_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_failure_signatures(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_failure_signatures(text) TO evalward_app;

-- Open rows of scheduler.workers.
CREATE FUNCTION scheduler_app.open_workers()
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.workers t
    WHERE (t.state IN ('active', 'draining') OR t.active_count > 0)
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_workers() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_workers() TO evalward_app;

-- How many rows of a table have expired: those between (after, before) of (age, id) that nothing protects, counted up to
-- row_cap (>= 1), and when the oldest of them ended. tenant: NULL for scheduler.workers. Read-only, no lock.
CREATE FUNCTION scheduler_app.measure_expired(
    table_name text, tenant text, before_at timestamptz, before_id uuid, after_at timestamptz, after_id uuid,
    row_cap integer)
    RETURNS TABLE (expired integer, oldest_at timestamptz)
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT count(*)::integer, min(e.ended_at) FROM ('
        '    SELECT t.ended_at FROM scheduler_app.%I(%s) AS t WHERE NOT t.is_guarded AND (t.ended_at, t.id) < ($2, $3)'
        '      AND (t.ended_at, t.id) > ($4, $5)'
        '    ORDER BY t.ended_at, t.id LIMIT $6) AS e',
        'terminal_' || split_part(table_name, '.', 2), CASE WHEN tenant IS NULL THEN '' ELSE '$1' END)
    USING tenant, before_at, before_id, after_at, after_id, row_cap;
END
$$;

-- What a table holds for a tenant, each count at most row_cap (>= 1), so that a huge backlog costs no more than a small one.
-- expired: of the eligible, those before (before_at, before_id), with the age of the oldest; protected: open rows, and
-- terminal ones that a lease or a trigger needs. tenant: NULL for scheduler.workers. Read-only, no lock.
CREATE FUNCTION scheduler_app.measure_table(
    table_name text, tenant text, before_at timestamptz, before_id uuid, row_cap integer)
    RETURNS TABLE (eligible integer, expired integer, protected integer, incomplete integer, oldest_at timestamptz)
    LANGUAGE plpgsql
    STABLE
AS $$
DECLARE
    tenant_argument text := CASE WHEN tenant IS NULL THEN '' ELSE '$1' END;
    bare_name text := split_part(table_name, '.', 2);
    terminal text := format('scheduler_app.%I(%s) AS t', 'terminal_' || bare_name, tenant_argument);
    open text := format('scheduler_app.%I(%s) AS o', 'open_' || bare_name, tenant_argument);
BEGIN
    RETURN QUERY EXECUTE
        'SELECT (SELECT count(*) FROM (SELECT 1 FROM ' || terminal || ' WHERE NOT t.is_guarded LIMIT $4) AS e)::integer,'
        ' x.expired, (g.guarded + a.active)::integer,'
        ' (SELECT count(*) FROM (SELECT 1 FROM ' || open || ' WHERE o.is_incomplete LIMIT $4) AS i)::integer, x.oldest_at'
        ' FROM scheduler_app.measure_expired($5, $1, $2, $3, ''-infinity'', $3, $4) AS x,'
        ' (SELECT count(*) FILTER (WHERE w.is_guarded) AS guarded FROM (SELECT t.is_guarded FROM ' || terminal
        || ' LIMIT $4) AS w) AS g,'
        ' (SELECT count(*) AS active FROM (SELECT 1 FROM ' || open || ' WHERE NOT o.is_incomplete LIMIT $4) AS o) AS a'
    USING tenant, before_at, before_id, row_cap, table_name;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.measure_expired(text, text, timestamptz, uuid, timestamptz, uuid, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.measure_table(text, text, timestamptz, uuid, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.measure_expired(text, text, timestamptz, uuid, timestamptz, uuid, integer)
    TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.measure_table(text, text, timestamptz, uuid, integer) TO evalward_app;

-- Two routines a table. find_expired_*: the place (age, id) before which rows go: those that ended before expired_before,
-- and the oldest of those beyond the newest row_budget (>= 1; NULL: no budget) that nothing protects; and whether there is
-- one. Costs row_budget steps in an index at most, and one for each protected row on the way. Read-only, no lock.
--
-- expire_*: one call a batch, each in a transaction of its own. Rows that ended between (after, before) of (age, id) go,
-- oldest first, at most `batch` (>= 1) of them. Returns how many were selected and deleted, of a full batch the place of
-- the last one, after which the next begins instead of walking over what the batches before it left dead, and whether rows
-- may have been passed over.
--
-- At first the place of the last row of a full batch is found in the index, and all that ends there is deleted; should
-- there be more than `batch` by then, that is undone and done the second way. The DELETE carries the whole condition, in a
-- snapshot of its own, and PostgreSQL looks at it again in the newest version of a row that somebody has changed
-- meanwhile. It waits for a locked row no longer than 20 ms. Then, and when a trigger has taken up a job meanwhile, rows
-- are chosen that nobody holds: the choice is MATERIALIZED because a plan may otherwise run it, with its LIMIT, once for
-- each row it is joined to; its rows are found again by the place where they are locked; the condition is repeated,
-- between the bounds of the batch, so that a plan that walks the index again does not walk the whole backlog. That costs
-- twice as much, rows being locked and then deleted. A lease counts as live from the beginning of the call, before any
-- snapshot: one that is renewed meanwhile has not run out.
--
-- Plans are kept and walk the index in its order, may neither read a table whole nor sort it: the planner knows nothing
-- of `batch` and often nothing of the table, and a bitmap takes three times as long (measured). Rows are counted, not
-- returned, which took a third of the time (measured). The commit does not wait for the disk: what a crash brings back is
-- swept again, and the receipt, which waits, comes after it. Locks: the rows. Raises EW001 without a tenant, EW003 for
-- another than the transaction's.
--
-- The routines are one text with the names, the age and the condition of each table in it, and what becomes of what was
-- deleted: jobs leave their outcomes in the history, in the same statement.
DO $make$
DECLARE
    template text := $template$
-- Finds what has expired in {table}.
CREATE FUNCTION scheduler_app.find_expired_{routine}({tenant}expired_before timestamptz, row_budget integer)
    RETURNS TABLE (before_at timestamptz, before_id uuid, is_expired boolean)
    LANGUAGE plpgsql
    STABLE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
BEGIN
    IF row_budget IS NOT NULL THEN
        SELECT {age}, t.id INTO before_at, before_id
        FROM {table} t
        WHERE {condition}
        ORDER BY {age} DESC, t.id DESC
        OFFSET row_budget - 1
        LIMIT 1;
    END IF;
    IF before_at IS NULL OR before_at < expired_before THEN
        before_at := expired_before;
        before_id := '00000000-0000-0000-0000-000000000000';
    END IF;
    PERFORM FROM {table} t
    WHERE {condition}
      AND ({age}, t.id) < (before_at, before_id)
    ORDER BY {age}, t.id
    LIMIT 1;
    is_expired := FOUND;
    RETURN NEXT;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.find_expired_{routine} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.find_expired_{routine} TO evalward_app;

-- Deletes one batch of {table}.
CREATE FUNCTION scheduler_app.expire_{routine}(
    {tenant}before_at timestamptz, before_id uuid, after_at timestamptz, after_id uuid, batch integer)
    RETURNS TABLE (
        selected integer, deleted integer, last_at timestamptz, last_id uuid, may_have_passed_over boolean)
    LANGUAGE plpgsql
    VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
BEGIN
    {check}
    PERFORM scheduler_app.commit_without_waiting();
    BEGIN
        PERFORM set_config('lock_timeout', '20ms', true);
        SELECT {age}, t.id INTO last_at, last_id
        FROM {table} t
        WHERE {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
        ORDER BY {age}, t.id
        OFFSET batch - 1
        LIMIT 1;
        IF FOUND THEN
            selected := batch;
        ELSE
            last_at := before_at;
            last_id := before_id;
        END IF;
        {beforehand}DELETE FROM {table} t
        WHERE {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
          AND ({age}, t.id) <= (last_at, last_id){afterwards};
        GET DIAGNOSTICS deleted = ROW_COUNT;
        IF deleted > batch THEN
            RAISE EXCEPTION 'more rows than the batch' USING ERRCODE = 'lock_not_available';
        END IF;
        selected := coalesce(selected, deleted);
        may_have_passed_over := false;
        RETURN NEXT;
        RETURN;
    EXCEPTION
        WHEN lock_not_available OR foreign_key_violation THEN
            -- What follows takes the others. The time-out is as before the block.
            NULL;
    END;
    RETURN QUERY
    WITH candidates AS MATERIALIZED (
        SELECT t.id, t.ctid AS place, {age} AS ended_at
        FROM {table} t
        WHERE {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
        ORDER BY {age}, t.id
        LIMIT batch
        FOR UPDATE OF t SKIP LOCKED
    ), last AS MATERIALIZED (
        SELECT c.ended_at, c.id FROM candidates c ORDER BY c.ended_at DESC, c.id DESC LIMIT 1
    ), gone AS (
        DELETE FROM {table} t
        USING candidates c
        WHERE t.ctid = c.place
          AND {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
          AND ({age}, t.id) <= ((SELECT l.ended_at FROM last l), (SELECT l.id FROM last l))
        RETURNING {returned}
    ){archived}
    SELECT (SELECT count(*) FROM candidates)::integer, (SELECT count(*) FROM gone)::integer, l.ended_at, l.id, true
    FROM (SELECT 1) AS one
    LEFT JOIN last AS l ON true;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.expire_{routine} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.expire_{routine} TO evalward_app;
$template$;
    archive text := $archive$
        INSERT INTO scheduler.job_history AS h (
            tenant_id, id, kind, state, dedupe_key, attempts, result, error, created_at, created_by, started_at,
            completed_at)
        SELECT gone.tenant_id, gone.id, gone.kind, gone.state, gone.dedupe_key, gone.attempts, gone.result, gone.error,
               gone.created_at, gone.created_by, gone.started_at, gone.completed_at
        FROM gone
        -- The job of a delivery or a sink may be opened again under its id after it was swept: the later outcome counts.
        ON CONFLICT (tenant_id, id) DO UPDATE
        SET state = excluded.state, attempts = excluded.attempts, result = excluded.result, error = excluded.error,
            created_at = excluded.created_at, created_by = excluded.created_by, started_at = excluded.started_at,
            completed_at = excluded.completed_at, archived_at = clock_timestamp()$archive$;
    returned_jobs text := 't.tenant_id, t.id, t.kind, t.state, t.dedupe_key, t.attempts, t.result, t.error, t.created_at,
                  t.created_by, t.started_at, t.completed_at';
    made record;
    part record;
    routine text;
BEGIN
    FOR made IN
        SELECT g.routine, g."table", g.age, g.condition,
               CASE g.routine WHEN 'workers' THEN '' ELSE 'tenant text, ' END AS tenant,
               CASE g.routine WHEN 'workers' THEN ''
                              ELSE 'PERFORM scheduler_app.raise_unless_tenant(tenant);' END AS "check",
               CASE g.routine WHEN 'jobs' THEN returned_jobs ELSE 't.id' END AS returned,
               CASE g.routine WHEN 'jobs' THEN 'WITH gone AS (' ELSE '' END AS beforehand,
               CASE g.routine WHEN 'jobs' THEN ' RETURNING ' || returned_jobs || ')' || archive ELSE '' END AS afterwards,
               CASE g.routine WHEN 'jobs' THEN ', archived AS (' || archive || ')' ELSE '' END AS archived
        FROM (VALUES
            ('jobs', 'scheduler.jobs', 't.completed_at',
             $$t.tenant_id = tenant AND t.state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND t.completed_at IS NOT NULL
             AND NOT EXISTS (
                 SELECT 1 FROM scheduler.triggers g WHERE g.tenant_id = t.tenant_id AND g.last_job_id = t.id)
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = CASE t.kind WHEN 'dataset_import' THEN 'import:' WHEN 'webhook_delivery' THEN 'webhook:'
                                            ELSE 'sink:' END || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())$$),
            ('runs', 'scheduler.runs', 't.finished_at',
             $$t.tenant_id = tenant AND t.state IN ('completed', 'error', 'cancelled') AND t.finished_at IS NOT NULL$$),
            ('graph_jobs', 'scheduler.graph_jobs', 't.updated_at',
             $$t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'canceled')$$),
            ('policy_run_jobs', 'scheduler.policy_run_jobs', 't.updated_at',
             $$t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'cancelled')
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = 'shard:' || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())$$),
            ('estate_run_queue', 'scheduler.estate_run_queue', 't.completed_at',
             $$t.tenant_id = tenant AND t.acknowledged_at IS NOT NULL AND t.outcome IS NOT NULL AND t.completed_at IS NOT NULL
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = 'run:' || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = 'finish:' || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())$$),
            ('pack_storage_outbox', 'packs.pack_storage_outbox', 't.published_at',
             $$t.tenant_id = tenant AND t.published_at IS NOT NULL$$),
            ('failure_signatures', 'scheduler.failure_signatures', 't.resolved_at',
             $$t.tenant_id = tenant AND t.state = 'resolved' AND t.resolved_at IS NOT NULL$$),
            ('workers', 'scheduler.workers', 't.heartbeat_at',
             $$t.state = 'stopped' AND t.active_count = 0$$),
            ('job_history', 'scheduler.job_history', 't.completed_at',
             $$t.tenant_id = tenant$$)
        ) AS g (routine, "table", age, condition)
    LOOP
        routine := template;
        FOR part IN SELECT * FROM jsonb_each_text(to_jsonb(made)) LOOP
            routine := replace(routine, '{' || part.key || '}', part.value);
        END LOOP;
        EXECUTE routine;
    END LOOP;
END
$make$;

-- What has expired in the given tables of a tenant (NULL: scheduler.workers): a row for each in which something has, with
-- the place before which its rows go. The arrays belong together: for each table its cut-off and its budget of rows.
-- Read-only, no lock.
CREATE FUNCTION scheduler_app.find_expired(
    tenant text, table_names text[], expired_before timestamptz[], row_budgets integer[])
    RETURNS TABLE (table_name text, before_at timestamptz, before_id uuid)
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    FOR number IN 1 .. cardinality(table_names) LOOP
        RETURN QUERY EXECUTE format(
            'SELECT $1, f.before_at, f.before_id FROM scheduler_app.%I(%s$3, $4) AS f WHERE f.is_expired',
            'find_expired_' || split_part(table_names[number], '.', 2),
            CASE WHEN tenant IS NULL THEN '' ELSE '$2, ' END)
        USING table_names[number], tenant, expired_before[number], row_budgets[number];
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.find_expired(text, text[], timestamptz[], integer[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.find_expired(text, text[], timestamptz[], integer[]) TO evalward_app;

-- What each sweep of the keeper did; the newest 90 are kept. Holds no tenant but the one the next sweep goes on after.
CREATE TABLE scheduler.sweep_receipts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at timestamptz NOT NULL,  -- the cut-offs count from here
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    scope_count integer NOT NULL CHECK (scope_count >= 0),  -- scopes that were swept, the global one included
    failed_scope_count integer NOT NULL CHECK (failed_scope_count >= 0),
    -- the last scope that was reached when the time was over: the next sweep goes on after it; NULL: all were reached
    stopped_after text,
    -- table -> {deleted, remaining, is_remaining_capped, is_budget_used_up, oldest_age_seconds}
    tables jsonb NOT NULL,
    CHECK (finished_at >= started_at)
);
CREATE INDEX sweep_receipts_by_time ON scheduler.sweep_receipts (started_at DESC, id DESC);
GRANT SELECT, INSERT, DELETE ON scheduler.sweep_receipts TO evalward_app;
-- The first sweep waits for a while after the installation, whose time the ledger knows.
GRANT SELECT ON coordination.schema_migrations TO evalward_app;

-- Which kind each table of scheduler and packs is: operational ones hold completed mechanics and are swept, custody ones
-- hold decisions, authority and evidence and never are.
CREATE TABLE scheduler.table_classes (
    table_name text PRIMARY KEY,  -- schema.table
    class text NOT NULL CHECK (class IN ('operational', 'custody')),
    reason text NOT NULL CHECK (length(reason) > 0)
);
GRANT SELECT ON scheduler.table_classes TO evalward_app;
-- Its rows are in the migration 0012.

-- Sizes as the capacity probe measured them; each new receipt keeps the newest 90. Written by the owner only.
CREATE TABLE scheduler.capacity_probe_receipt (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    measured_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    database_bytes bigint NOT NULL CHECK (database_bytes >= 0),  -- of the whole database
    entries jsonb NOT NULL  -- table -> bytes on disk with indexes and TOAST
);
CREATE INDEX capacity_probe_receipt_by_time ON scheduler.capacity_probe_receipt (measured_at DESC, id DESC);
GRANT SELECT ON scheduler.capacity_probe_receipt TO evalward_app;

-- ==================== evals: sinks =================================================================================

-- One sink of one run. The row is what makes it idempotent: its job may be swept.
CREATE TABLE evals.run_sinks (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,  -- deleted with the run
    sink_no integer NOT NULL CHECK (sink_no >= 0),  -- its place in the request
    id uuid NOT NULL DEFAULT gen_random_uuid(),  -- also of its job
    config jsonb NOT NULL,  -- kind and its own fields, without secrets
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'queued', 'succeeded', 'failed')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- made so far
    error text,  -- why the last attempt failed
    external_id text,  -- what the destination calls it: the id of a run in MLflow
    completed_at timestamptz,
    PRIMARY KEY (tenant_id, run_id, sink_no),
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, run_id) REFERENCES evals.runs (tenant_id, id),
    CHECK ((state IN ('succeeded', 'failed')) = (completed_at IS NOT NULL))
);

ALTER TABLE evals.run_sinks ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_sinks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_sinks
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_sinks TO evalward_app;

-- ==================== sources: what they pull, windows =============================================================

-- What a source pulls, and how its pulls went. Its schedule is the row of scheduler.schedules with its id.
CREATE TABLE evals.sources (
    tenant_id text NOT NULL,
    id text NOT NULL,
    config jsonb NOT NULL,  -- SourceConfig, complete
    config_sha256 text NOT NULL CHECK (config_sha256 ~ '^[0-9a-f]{64}$'),  -- part of the name of its runs
    last_evaluation_id uuid,  -- the run to wait for before another one starts
    last_attempt_at timestamptz,  -- when it was last at work
    missed_deadline bigint NOT NULL DEFAULT 0 CHECK (missed_deadline >= 0),  -- ticks whose time ran out
    missed_overlap bigint NOT NULL DEFAULT 0 CHECK (missed_overlap >= 0),  -- … while the last run was open
    failed_attempts bigint NOT NULL DEFAULT 0 CHECK (failed_attempts >= 0),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, id) REFERENCES scheduler.schedules (tenant_id, id)
);

-- The ledger: what became of each tick. A gap too long for a row a tick is one row that counts them.
CREATE TABLE evals.source_windows (
    tenant_id text NOT NULL,
    source_id text NOT NULL,
    tick_at timestamptz NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    ticks bigint NOT NULL DEFAULT 1 CHECK (ticks >= 1),  -- more than 1: a gap, from its first window to its last
    state text NOT NULL CHECK (
        state IN ('requested', 'working', 'done', 'empty', 'missed_deadline', 'missed_overlap', 'skipped')),
    state_before text,  -- of a window that is run by hand: what it is again when that comes to nothing
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    traces integer,
    error_code text,
    error text,
    trace_id text,  -- where the last attempt failed
    evaluation_id uuid,
    exclude_trace_ids text[] NOT NULL DEFAULT '{}',
    requested_by text,  -- principal that ran it by hand
    next_attempt_at timestamptz,  -- not to be tried again before
    deadline_at timestamptz,  -- of a window that is run by hand: not to be tried after
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, source_id, tick_at),
    FOREIGN KEY (tenant_id, source_id) REFERENCES evals.sources (tenant_id, id),
    CHECK (window_start < window_end),
    CHECK ((state = 'requested') = (state_before IS NOT NULL))
);
CREATE INDEX source_windows_by_start ON evals.source_windows (tenant_id, source_id, window_start, tick_at DESC);
CREATE INDEX source_windows_open ON evals.source_windows (tenant_id, source_id, tick_at)
    WHERE state IN ('requested', 'working');

-- A tick follows the run that was made of it, however that one begins, ends or is resumed.
CREATE FUNCTION scheduler.move_tick_with_run()
    RETURNS trigger
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    UPDATE scheduler.runs t
    SET state = CASE NEW.state WHEN 'pending' THEN 'queued' WHEN 'succeeded' THEN 'completed' WHEN 'failed' THEN 'completed'
                               ELSE NEW.state END,
        finished_at = NEW.finished_at
    WHERE t.tenant_id = NEW.tenant_id AND t.evaluation_id = NEW.id;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION scheduler.move_tick_with_run() FROM PUBLIC;
CREATE TRIGGER move_tick_with_run AFTER UPDATE OF state ON evals.runs
    FOR EACH ROW WHEN (NEW.source_id IS NOT NULL AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION scheduler.move_tick_with_run();

ALTER TABLE evals.sources ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.sources FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.sources
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.source_windows ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.source_windows FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.source_windows
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.sources, evals.source_windows TO evalward_app;

-- One answer of a run's target; a run whose records carry their outputs has none. Written before or with the results of
-- its record and trial: while it is here, its target is not asked again. No foreign key to runs, as for evals.run_results.
CREATE TABLE evals.run_outputs (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    record_no integer NOT NULL CHECK (record_no >= 0),  -- number of the record in the snapshot, from 0
    trial smallint NOT NULL CHECK (trial >= 1),
    record text NOT NULL,  -- the record's id
    output json,  -- as the target gave it; NULL when it gave none
    latency_ms double precision CHECK (latency_ms >= 0),  -- of the call that brought it; NULL when none did
    input_tokens bigint CHECK (input_tokens >= 0),  -- as the target says; NULL when it does not
    output_tokens bigint CHECK (output_tokens >= 0),
    cost_usd double precision CHECK (cost_usd >= 0),  -- US dollars
    error text,  -- why there is no output, for people; quotes nothing of the target's answer
    attempts smallint NOT NULL CHECK (attempts >= 1),  -- calls of the invocation that brought it or gave up
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, run_id, record_no, trial),
    CHECK ((output IS NULL) = (error IS NOT NULL))
);

ALTER TABLE evals.run_outputs ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_outputs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_outputs
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_outputs TO evalward_app;

-- The value that a record of a run has under a metadata key that the run is sliced by. Written before the results of the
-- record's shard. No foreign key to runs, as for evals.run_results.
CREATE TABLE evals.run_slices (
    tenant_id text NOT NULL,
    run_id uuid NOT NULL,
    key text NOT NULL CHECK (length(key) BETWEEN 1 AND 100),  -- of the metadata
    record_no integer NOT NULL CHECK (record_no >= 0),  -- number of the record in the snapshot, from 0
    value text NOT NULL CHECK (length(value) <= 1000),  -- a JSON scalar, a text cut at 100 characters
    PRIMARY KEY (tenant_id, run_id, key, record_no)
);

ALTER TABLE evals.run_slices ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.run_slices FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.run_slices
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.run_slices TO evalward_app;
