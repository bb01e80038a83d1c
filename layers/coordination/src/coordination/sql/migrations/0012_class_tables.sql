-- The class of each table of scheduler and packs; the projects of adopted packs.
SET LOCAL lock_timeout = '5s';

-- Which kind each table of scheduler and packs is: operational ones hold completed mechanics and are swept, custody ones
-- hold decisions, authority and evidence and never are.
CREATE TABLE scheduler.table_classes (
    table_name text PRIMARY KEY,
    class text NOT NULL CHECK (class IN ('operational', 'custody')),
    reason text NOT NULL CHECK (length(reason) > 0)
);
GRANT SELECT ON scheduler.table_classes TO evalward_app;

INSERT INTO scheduler.table_classes (table_name, class, reason) VALUES
    ('scheduler.jobs', 'operational', 'units of asynchronous work that have ended'),
    ('scheduler.runs', 'operational', 'ticks of sources that have ended'),
    ('scheduler.graph_jobs', 'operational', 'assemblies of windows that have ended'),
    ('scheduler.policy_run_jobs', 'operational', 'shards that have ended'),
    ('scheduler.estate_run_queue', 'operational', 'dispatches that were acknowledged and have an outcome'),
    ('packs.pack_storage_outbox', 'operational', 'storage events that were published'),
    ('scheduler.failure_signatures', 'operational', 'failures that were resolved'),
    ('scheduler.workers', 'operational', 'execution environments that have stopped'),
    ('scheduler.job_history', 'operational', 'outcomes of jobs, after a window of their own'),
    ('scheduler.schedules', 'custody', 'authored: when sources tick; retired ones stay'),
    ('scheduler.triggers', 'custody', 'authored causes of work and the latest job of each'),
    ('scheduler.table_classes', 'custody', 'the declaration itself'),
    ('scheduler.sweep_receipts', 'custody', 'evidence of the keeper; each new one keeps the newest 90'),
    ('scheduler.capacity_probe_receipt', 'custody', 'evidence of the capacity probe; each new one keeps the newest 90'),
    ('packs.packs', 'custody', 'dataset versions; only a deletion of the dataset removes one'),
    ('packs.pack_storage_events', 'custody', 'what happened to datasets'),
    ('packs.upload_reservations', 'custody', 'capacity claims; only finalization or the fenced recovery ends one'),
    ('packs.object_removals', 'custody', 'generations of removed contents, which publications compare');

-- Every tenant of adopted packs is a project, so that all work finds it. FORCE is off inside the locked statement only;
-- otherwise the tenants' policies would hide their rows from the owner.
LOCK TABLE packs.packs, packs.pack_storage_events, packs.pack_storage_outbox IN ACCESS EXCLUSIVE MODE;
ALTER TABLE packs.packs NO FORCE ROW LEVEL SECURITY;
ALTER TABLE packs.pack_storage_events NO FORCE ROW LEVEL SECURITY;
ALTER TABLE packs.pack_storage_outbox NO FORCE ROW LEVEL SECURITY;
INSERT INTO coordination.projects (id, description, created_by)
SELECT t.tenant_id, 'adopted', 'deployment'
FROM (SELECT p.tenant_id FROM packs.packs p
      UNION SELECT e.tenant_id FROM packs.pack_storage_events e
      UNION SELECT o.tenant_id FROM packs.pack_storage_outbox o) AS t
ON CONFLICT (id) DO NOTHING;
ALTER TABLE packs.packs FORCE ROW LEVEL SECURITY;
ALTER TABLE packs.pack_storage_events FORCE ROW LEVEL SECURITY;
ALTER TABLE packs.pack_storage_outbox FORCE ROW LEVEL SECURITY;
