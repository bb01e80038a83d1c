-- name: open_call
-- The caller, the project that the path names, the live record of the Idempotency-Key and with it the count of its scope,
-- in one row; none when the API key is unknown. key_id: 16 hex digits; secret_sha256: 32 bytes; key_sha256: 32 bytes, or NULL
-- for a call without an Idempotency-Key; project: id or NULL; tenant: of the scope. Without a live record its columns are
-- NULL. No lock.
SELECT caller, caller_name, grants, is_expired, project, records, id, operation, fingerprint, state, status, headers,
       body, claimed_at, deadline_seconds
FROM coordination.open_call(%(key_id)s, %(secret_sha256)s, %(project)s, %(tenant)s, %(key_sha256)s);

-- name: insert_audit_event
-- Note who did, or was refused, what. No lock.
INSERT INTO coordination.audit_events (principal, project, operation, outcome, target, request_id)
VALUES (%(principal)s::text, %(project)s::text, %(operation)s::text, %(outcome)s::text, %(target)s::text,
        %(request_id)s::text);
