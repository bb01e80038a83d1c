"""Retry-safe writes: a write repeated under its Idempotency-Key takes effect once.

A key belongs to a scope (principal and project) and is bound to the fingerprint of its first request. In **local** mode
(all effects in PostgreSQL) claim, effect and stored outcome are one transaction:

    no live record ── claim (try-lock on the key, second look) ── effect ── store (scope lock, prune, count, insert)
          │                  │                                                │
          │                  ├─ lock taken: 409 in progress, Retry-After 1    └─ scope full: 429, nothing happened
          │                  └─ record seen: as below
          └─ live record: other fingerprint 422; tombstone 409; else the stored answer, `Idempotency-Replayed: true`

Failure cases: a crash or an error before the commit leaves nothing behind, and a retry simply runs. A connection lost
while COMMIT was under way is resolved by reading the record back; if it cannot be read, the caller is told that the
outcome is unknown and repeats with the same key. Authentication and authorization run before any of this, on every
retry. Without the header a write stores nothing.
"""
