-- The capacity probe.
SET LOCAL lock_timeout = '5s';

-- Sizes as the capacity probe measured them; each new receipt keeps the newest 90. Written by the owner only.
CREATE TABLE scheduler.capacity_probe_receipt (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    measured_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    database_bytes bigint NOT NULL CHECK (database_bytes >= 0),
    entries jsonb NOT NULL
);
CREATE INDEX capacity_probe_receipt_by_time ON scheduler.capacity_probe_receipt (measured_at DESC, id DESC);
GRANT SELECT ON scheduler.capacity_probe_receipt TO evalward_app;
