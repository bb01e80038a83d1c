"""The shared layer: database, tenancy, locks, leases, idempotency, wake-ups, problems, settings, access."""
