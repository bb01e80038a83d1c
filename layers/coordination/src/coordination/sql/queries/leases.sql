-- name: take_lease
-- Take a lease that is free or has expired; no row comes back while another owner's is live.
-- seconds: how long it is ours, > 0. Lock: the lease's row.
INSERT INTO coordination.leases AS l (name, owner, epoch, expires_at)
VALUES (%(name)s::text, %(owner)s::uuid, 1, clock_timestamp() + make_interval(secs => %(seconds)s::integer))
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, epoch = l.epoch + 1,
    expires_at = clock_timestamp() + make_interval(secs => %(seconds)s::integer)
WHERE l.expires_at IS NULL OR l.expires_at <= clock_timestamp()
RETURNING l.epoch;

-- name: renew_lease
-- Extend a lease that is still ours. seconds: from now, > 0. Lock: the lease's row.
UPDATE coordination.leases
SET expires_at = clock_timestamp() + make_interval(secs => %(seconds)s::integer)
WHERE name = %(name)s::text AND owner = %(owner)s::uuid AND epoch = %(epoch)s::bigint
  AND expires_at > clock_timestamp()
RETURNING epoch;

-- name: lock_lease
-- Make sure that a lease is still ours and keep it so until the transaction ends. Lock: the lease's row.
SELECT epoch FROM coordination.leases
WHERE name = %(name)s::text AND owner = %(owner)s::uuid AND epoch = %(epoch)s::bigint
  AND expires_at > clock_timestamp()
FOR UPDATE;

-- name: release_lease
-- Give a lease back; the epoch stays, so that it only grows. Lock: the lease's row.
UPDATE coordination.leases
SET owner = NULL, expires_at = NULL
WHERE name = %(name)s::text AND owner = %(owner)s::uuid AND epoch = %(epoch)s::bigint;

-- name: delete_lease
-- Delete a lease with the work that it covered. Lock: the lease's row.
DELETE FROM coordination.leases
WHERE name = %(name)s::text AND owner = %(owner)s::uuid AND epoch = %(epoch)s::bigint;
