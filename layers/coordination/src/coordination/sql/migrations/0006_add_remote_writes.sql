-- Keyed writes whose effects lie outside the database: claim, complete, release, resolve, and the pruning of scopes.
SET LOCAL lock_timeout = '5s';

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
