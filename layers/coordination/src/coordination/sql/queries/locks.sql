-- name: take_advisory_lock
-- Wait for the transaction-level advisory lock (namespace, name); docs/locks.md lists them. Lock: that one.
SELECT coordination.take_advisory_lock(%(namespace)s::text, %(name)s::text);
