-- name: read_outcome
-- The live record of a key, if any. key_sha256: 32 bytes. No lock.
SELECT r.id, r.operation, r.fingerprint, r.state, r.status, r.headers, r.body, r.claimed_at,
       ceil(extract(epoch FROM r.deadline_at - clock_timestamp()))::bigint AS deadline_seconds
FROM coordination.idempotency_records r
WHERE r.tenant_id = %(tenant)s::text AND r.principal = %(principal)s::text AND r.key_sha256 = %(key_sha256)s::bytea
  AND r.expires_at > clock_timestamp();

-- name: begin_local_write
-- First statement after BEGIN of a keyed local write: tenant, time-outs and claim. Raises EW101 (in progress) or EW102 (a
-- live record exists). lock_ms, statement_ms: milliseconds. Lock: transaction-level try-lock on the key, never waits.
SELECT coordination.claim_local_write(
    scheduler_app.begin_tenant(%(tenant)s, %(lock_ms)s, %(statement_ms)s), %(principal)s, %(key_sha256)s);

-- name: end_local_write
-- Last statement of a keyed local write: audit event and outcome; returns the records left in the scope. Raises EW103 at
-- the cap. body: NULL when it is too large to keep; retention_seconds: how long the outcome is replayed; max_bytes: bytes.
-- Lock: transaction-level lock on the scope, held until the commit that follows at once.
SELECT coordination.end_local_write(
    %(tenant)s, %(principal)s, %(key_sha256)s, %(operation)s, %(fingerprint)s, %(status)s, %(headers)s, %(body)s,
    %(retention_seconds)s, %(max_records)s, %(max_bytes)s, %(audited_as)s, %(target)s, %(request_id)s) AS records_left;

-- name: count_records
-- Live records of a scope, for the capacity header. No lock.
SELECT coordination.count_live_records(%(tenant)s::text, %(principal)s::text) AS records;

-- name: claim_remote_write
-- Claim a key before a remote effect. owner_ms: milliseconds until the owner's deadline; retention_seconds: how long an
-- uncertain claim blocks its key; max_bytes, reserved_bytes: bytes. Raises EW101, EW102, EW103.
-- Lock: try-lock on the key, then the scope's lock, until the commit that follows at once.
SELECT coordination.claim_remote_write(
    %(tenant)s::text, %(principal)s::text, %(key_sha256)s::bytea, %(operation)s::text, %(fingerprint)s::bytea,
    %(token)s::uuid, %(owner_ms)s::bigint, make_interval(secs => %(retention_seconds)s::integer),
    %(max_records)s::integer, %(max_bytes)s::bigint, %(reserved_bytes)s::bigint) AS records_left;

-- name: wait_for_key
-- Wait until no transaction holds the key, so that the next statement sees what a lost one did.
-- Lock: the key's, transaction-level, until the transaction ends.
SELECT coordination.wait_for_key(%(tenant)s::text, %(principal)s::text, %(key_sha256)s::bytea);

-- name: read_claim
-- The state of this owner's claim, after a lost answer. Lock: the row, so that a transaction that is just completing it
-- is waited for. `resolved`: somebody else said that it happened.
SELECT CASE WHEN state = 'tombstone' AND status IS NULL THEN 'resolved' ELSE state END AS state
FROM coordination.idempotency_records
WHERE tenant_id = %(tenant)s::text AND principal = %(principal)s::text AND key_sha256 = %(key_sha256)s::bytea
  AND owner_token = %(token)s::uuid
FOR UPDATE;

-- name: complete_remote_write
-- Complete a claim in the transaction that writes the effect's rows. Raises EW104 when it is not this owner's any more.
-- body: NULL when it is too large to keep; retention_seconds: how long the outcome is replayed. Lock: the scope's.
SELECT coordination.complete_remote_write(
    %(tenant)s::text, %(principal)s::text, %(key_sha256)s::bytea, %(token)s::uuid, %(status)s::integer,
    %(headers)s::jsonb, %(body)s::bytea, %(retention_seconds)s::integer, %(max_bytes)s::bigint);

-- name: release_claim
-- Give a claim back whose effect has not begun; nothing for another token. Lock: the scope's.
SELECT coordination.release_claim(
    %(tenant)s::text, %(principal)s::text, %(key_sha256)s::bytea, %(token)s::uuid);

-- name: list_claims
-- Claims without an outcome, oldest first. principal: whose; after_*: position of the page before, or NULL. No lock.
SELECT id, principal, operation, claimed_at, deadline_at, expires_at, deadline_at <= clock_timestamp() AS is_uncertain,
       encode(substring(key_sha256 FROM 1 FOR 6), 'hex') AS key_prefix
FROM coordination.idempotency_records
WHERE tenant_id = %(tenant)s::text AND state = 'claimed' AND principal = %(principal)s::text
  AND expires_at > clock_timestamp()
  AND (%(after_claimed_at)s::timestamptz IS NULL
       OR (claimed_at, id) > (%(after_claimed_at)s::timestamptz, %(after_id)s::uuid))
ORDER BY claimed_at, id
LIMIT %(limit)s::integer;

-- name: lock_scope_of_claim
-- Before a claim is resolved. caller: principal that resolves it. Lock: the scopes of both, until the transaction ends.
SELECT coordination.lock_scope_of_claim(%(tenant)s::text, %(id)s::uuid, %(caller)s::text);

-- name: lock_claim
-- One claim of any principal, kept as it is until the transaction ends. Lock: the row.
SELECT id, principal, operation, claimed_at, state, deadline_at <= clock_timestamp() AS is_uncertain
FROM coordination.idempotency_records
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND owner_token IS NOT NULL AND expires_at > clock_timestamp()
FOR UPDATE;

-- name: resolve_as_happened
-- An uncertain claim becomes a tombstone: its effect is never repeated under this key. Lock: the row.
UPDATE coordination.idempotency_records
SET state = 'tombstone', completed_at = clock_timestamp(), stored_bytes = 0
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND owner_token IS NOT NULL AND state = 'claimed'
  AND deadline_at <= clock_timestamp()
RETURNING id;

-- name: resolve_as_not_happened
-- An uncertain claim is released: a retry runs. Lock: the row.
DELETE FROM coordination.idempotency_records
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::uuid AND owner_token IS NOT NULL AND state = 'claimed'
  AND deadline_at <= clock_timestamp()
RETURNING id;

-- name: list_scopes
-- Scopes in order, for the hourly pass. after_*: the last one of the page before, or NULL. No lock.
SELECT tenant_id, principal FROM coordination.idempotency_scopes
WHERE %(after_tenant)s::text IS NULL
   OR (tenant_id, principal) > (%(after_tenant)s::text, %(after_principal)s::text)
ORDER BY tenant_id, principal
LIMIT %(limit)s::integer;

-- name: prune_scope
-- Delete what has expired in one scope. Lock: the scope's, until the commit that follows at once.
SELECT coordination.prune_scope(%(tenant)s::text, %(principal)s::text) AS pruned;
