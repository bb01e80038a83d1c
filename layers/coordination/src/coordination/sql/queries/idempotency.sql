-- name: read_outcome
-- The live record of a key, if any. key_sha256: 32 bytes. No lock.
SELECT r.id, r.operation, r.fingerprint, r.state, r.status, r.headers, r.body, r.claimed_at,
       ceil(extract(epoch FROM r.deadline_at - clock_timestamp()))::bigint AS deadline_seconds
FROM coordination.idempotency_records r
WHERE r.tenant_id = %(tenant)s::text AND r.principal = %(principal)s::text AND r.key_sha256 = %(key_sha256)s::bytea
  AND r.expires_at > clock_timestamp();

-- name: claim_local_write
-- First statement of a keyed local write. Raises EW101 (in progress) or EW102 (a live record exists).
-- Lock: transaction-level try-lock on the key, never waits.
SELECT coordination.claim_local_write(%(tenant)s::text, %(principal)s::text, %(key_sha256)s::bytea);

-- name: store_outcome
-- Last statement of a keyed local write; returns the records left in the scope. Raises EW103 at the cap.
-- retention_seconds: how long the outcome is replayed; max_bytes, max_outcome_bytes: caps in bytes.
-- Lock: transaction-level lock on the scope, held until the commit that follows at once.
SELECT coordination.store_outcome(
    %(tenant)s::text, %(principal)s::text, %(key_sha256)s::bytea, %(operation)s::text, %(fingerprint)s::bytea,
    %(status)s::integer, %(headers)s::jsonb, %(body)s::bytea, make_interval(secs => %(retention_seconds)s::integer),
    %(max_records)s::integer, %(max_bytes)s::bigint, %(max_outcome_bytes)s::bigint) AS records_left;
