-- name: list_audit_events
-- Audit events, newest first. project: id, `-`, or NULL for all; after_id: the last id of the page before. No lock.
SELECT id, at, principal, project, operation, outcome, request_id
FROM coordination.audit_events
WHERE (%(project)s::text IS NULL OR project = %(project)s::text)
  AND (%(after_id)s::bigint IS NULL OR id < %(after_id)s::bigint)
ORDER BY id DESC
LIMIT %(limit)s::integer;
