-- name: authenticate
-- The key that a caller presents and the project it names, in one row; no row when the key is unknown.
-- key_id: 16 hex digits; secret_sha256: 32 bytes; project: id or NULL. No lock.
SELECT k.id AS caller, k.name AS caller_name, k.grants, k.expires_at <= clock_timestamp() AS is_expired, p.id AS project
FROM coordination.api_keys k
LEFT JOIN coordination.projects p ON p.id = %(project)s::text
WHERE k.id = %(key_id)s::text AND k.secret_sha256 = %(secret_sha256)s::bytea;

-- name: insert_audit_event
-- Note who did, or was refused, what. No lock.
INSERT INTO coordination.audit_events (principal, project, operation, outcome, target, request_id)
VALUES (%(principal)s::text, %(project)s::text, %(operation)s::text, %(outcome)s::text, %(target)s::text,
        %(request_id)s::text);
