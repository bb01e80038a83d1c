"""Retry-safe writes: a write repeated under its Idempotency-Key takes effect once.

A key belongs to a scope (principal and project) and is bound to the fingerprint of its first request. Authentication
and authorization run before any of this, on every retry. Without the header a write stores nothing.

**Local mode** (all effects in PostgreSQL): claim, effect and stored outcome are one transaction.

    no live record ── claim (try-lock on the key, second look) ── effect ── store (scope lock, prune, count, insert)
          │                  │                                                │
          │                  ├─ lock taken: 409 in progress, Retry-After 1    └─ scope full: 429, nothing happened
          │                  └─ record seen: as below
          └─ live record: other fingerprint 422; tombstone 409; else the stored answer, `Idempotency-Replayed: true`

A crash or an error before the commit leaves nothing behind, and a retry simply runs. A connection lost while COMMIT was
under way is resolved by reading the record back; if it cannot be read, the caller is told that the outcome is unknown
and repeats with the same key.

**Remote mode** (an effect outside PostgreSQL): the claim commits first, with its owner's token and deadline.

    none ── claim ── act ─┬─ error before the effect boundary: released, a retry runs
                          ├─ error or crash after it: the claim stays
                          └─ rows and outcome commit together: completed

    claimed, deadline not passed   409 idempotency_in_progress, Retry-After = seconds to the deadline
    claimed, deadline passed       409 idempotency_uncertain: never repeated by itself; somebody resolves it as
                                   *happened* (a tombstone) or *did not happen* (released); pruned 24 h + 6 days
                                   after it was claimed
    completed, younger than 24 h   the stored answer
    tombstone                      409 idempotency_outcome_not_stored: the effect is not repeated, its answer is gone

Whatever the state, another fingerprint is answered with 422 first. Complete and release match the owner's token: a late
owner, and a duplicate that was refused, change no row. All times are the database's `clock_timestamp()`.

**Caps**: records and bytes per scope are counted under the scope's lock, uncertain claims and reserved bytes included.
At a cap a new key is refused (429); nothing is evicted. Every keyed write prunes its own scope, an hourly pass every
scope.
"""
