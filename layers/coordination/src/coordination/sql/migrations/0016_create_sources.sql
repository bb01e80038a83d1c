-- Sources: scheduled pulls of traces, their windows, and the runs they become.
SET LOCAL lock_timeout = '5s';

-- What a source pulls, and how its pulls went. Its schedule is the row of scheduler.schedules with its id.
CREATE TABLE evals.sources (
    tenant_id text NOT NULL,
    id text NOT NULL,
    config jsonb NOT NULL,
    config_sha256 text NOT NULL CHECK (config_sha256 ~ '^[0-9a-f]{64}$'),
    last_evaluation_id uuid,
    last_attempt_at timestamptz,
    missed_deadline bigint NOT NULL DEFAULT 0 CHECK (missed_deadline >= 0),
    missed_overlap bigint NOT NULL DEFAULT 0 CHECK (missed_overlap >= 0),
    failed_attempts bigint NOT NULL DEFAULT 0 CHECK (failed_attempts >= 0),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, id) REFERENCES scheduler.schedules (tenant_id, id)
);

-- The ledger: what became of each tick. A gap too long for a row a tick is one row that counts them.
CREATE TABLE evals.source_windows (
    tenant_id text NOT NULL,
    source_id text NOT NULL,
    tick_at timestamptz NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    ticks bigint NOT NULL DEFAULT 1 CHECK (ticks >= 1),
    state text NOT NULL CHECK (
        state IN ('requested', 'working', 'done', 'empty', 'missed_deadline', 'missed_overlap', 'skipped')),
    state_before text,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    traces integer,
    error_code text,
    error text,
    trace_id text,
    evaluation_id uuid,
    exclude_trace_ids text[] NOT NULL DEFAULT '{}',
    requested_by text,
    next_attempt_at timestamptz,
    deadline_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, source_id, tick_at),
    FOREIGN KEY (tenant_id, source_id) REFERENCES evals.sources (tenant_id, id),
    CHECK (window_start < window_end),
    CHECK ((state = 'requested') = (state_before IS NOT NULL))
);
CREATE INDEX source_windows_by_start ON evals.source_windows (tenant_id, source_id, window_start, tick_at DESC);
CREATE INDEX source_windows_open ON evals.source_windows (tenant_id, source_id, tick_at)
    WHERE state IN ('requested', 'working');

-- A run evaluates a dataset or the window of a source. Code from before sources meets no run without a dataset unless a
-- newer release has made one.
-- squawk-ignore ban-drop-not-null
ALTER TABLE evals.runs ALTER COLUMN dataset_name DROP NOT NULL;
-- squawk-ignore ban-drop-not-null
ALTER TABLE evals.runs ALTER COLUMN dataset_version DROP NOT NULL;
ALTER TABLE evals.runs ADD COLUMN source_id text, ADD COLUMN window_start timestamptz, ADD COLUMN window_end timestamptz;
ALTER TABLE evals.runs ADD CONSTRAINT runs_origin_check CHECK (
    num_nonnulls(dataset_name, source_id) = 1 AND (dataset_name IS NULL) = (dataset_version IS NULL)
    AND num_nonnulls(source_id, window_start, window_end) IN (0, 3)) NOT VALID;
ALTER TABLE evals.runs VALIDATE CONSTRAINT runs_origin_check;
CREATE INDEX runs_by_source ON evals.runs (tenant_id, source_id, created_at DESC, id DESC) WHERE source_id IS NOT NULL;
ALTER TABLE evals.run_snapshots
    ADD COLUMN redactions jsonb NOT NULL DEFAULT '{}', ADD COLUMN excluded_trace_ids text[] NOT NULL DEFAULT '{}';

-- A tick follows the run that was made of it, however that one begins, ends or is resumed.
CREATE FUNCTION scheduler.move_tick_with_run()
    RETURNS trigger
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    UPDATE scheduler.runs t
    SET state = CASE NEW.state WHEN 'pending' THEN 'queued' WHEN 'succeeded' THEN 'completed' WHEN 'failed' THEN 'completed'
                               ELSE NEW.state END,
        finished_at = NEW.finished_at
    WHERE t.tenant_id = NEW.tenant_id AND t.evaluation_id = NEW.id;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION scheduler.move_tick_with_run() FROM PUBLIC;
CREATE TRIGGER move_tick_with_run AFTER UPDATE OF state ON evals.runs
    FOR EACH ROW WHEN (NEW.source_id IS NOT NULL AND NEW.state IS DISTINCT FROM OLD.state)
    EXECUTE FUNCTION scheduler.move_tick_with_run();

ALTER TABLE evals.sources ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.sources FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.sources
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

ALTER TABLE evals.source_windows ENABLE ROW LEVEL SECURITY;
ALTER TABLE evals.source_windows FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON evals.source_windows
    USING (tenant_id = (SELECT scheduler_app.require_current_tenant()))
    WITH CHECK (tenant_id = (SELECT scheduler_app.require_current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON evals.sources, evals.source_windows TO evalward_app;

-- Pulls have a queue of their own; the pulse of sources looks at nothing but their wake-ups.
ALTER TABLE coordination.wake_ups DROP CONSTRAINT wake_ups_queue_check;
ALTER TABLE coordination.wake_ups ADD CONSTRAINT wake_ups_queue_check
    CHECK (queue IN ('conversion', 'evaluation', 'delivery', 'pull')) NOT VALID;
ALTER TABLE coordination.wake_ups VALIDATE CONSTRAINT wake_ups_queue_check;
CREATE INDEX wake_ups_of_sources ON coordination.wake_ups (due_at, id) WHERE kind = 'source_tick';

-- Whether a message is to be sent for work that is due: nobody is at it, and it is unsent, or its worker died, or it was
-- sent `resend_after` ago and taken up by nobody. expires_at: of its lease, NULL when it has none. Volatile, as its clock
-- is, and still SQL that becomes part of the statement which calls it.
CREATE FUNCTION scheduler_app.is_to_be_sent(sent_at timestamptz, expires_at timestamptz, resend_after interval)
    RETURNS boolean
    LANGUAGE sql
    VOLATILE
AS $$
    SELECT (expires_at IS NULL OR expires_at <= clock_timestamp())
       AND (sent_at IS NULL OR expires_at > sent_at OR sent_at <= clock_timestamp() - resend_after)
$$;
REVOKE ALL ON FUNCTION scheduler_app.is_to_be_sent(timestamptz, timestamptz, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.is_to_be_sent(timestamptz, timestamptz, interval) TO evalward_app;

-- Leads, marks up to `batch` sources that are due and to be sent as sent and returns them. Raises EW201 when another pulse
-- leads: it holds the lease, or is between its claim and its commit, for which nobody waits. The lease is given back as it
-- is taken, with a new epoch: its row keeps others away until the commit, which does not wait for the disk, since a mark
-- that a crash loses is a message sent twice and a pull does not mind. One indexed query whatever the number of sources: an
-- index takes no volatile function, so due is what is due when the statement begins; what another leader has marked since
-- then is seen when the row is locked. Locks: the lease's row, then the wake-ups' rows, skipping all that somebody holds.
CREATE FUNCTION scheduler_app.claim_due_sources(leader_lease text, batch integer, resend_after interval)
    RETURNS TABLE (queue text, kind text, project text, ref_id text)
    LANGUAGE plpgsql
    VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
AS $$
DECLARE
    is_leader boolean;
BEGIN
    PERFORM scheduler_app.commit_without_waiting();
    UPDATE coordination.leases l
    SET epoch = l.epoch + 1, owner = NULL, expires_at = NULL
    FROM (
        SELECT f.name FROM coordination.leases f
        WHERE f.name = leader_lease AND (f.expires_at IS NULL OR f.expires_at <= clock_timestamp())
        FOR UPDATE SKIP LOCKED) free
    WHERE l.name = free.name;
    IF NOT FOUND THEN
        -- The first pulse of all has no row to lead by. Looked for before: an insert waits for whoever holds the row, and
        -- so does one beside another first pulse, at most the transaction's lock_timeout.
        BEGIN
            INSERT INTO coordination.leases (name, epoch)
            SELECT leader_lease, 1 WHERE NOT EXISTS (SELECT 1 FROM coordination.leases f WHERE f.name = leader_lease)
            ON CONFLICT (name) DO NOTHING;
            is_leader := FOUND;
        EXCEPTION WHEN lock_not_available THEN
            is_leader := false;
        END;
        IF NOT is_leader THEN
            RAISE EXCEPTION 'another pulse leads' USING ERRCODE = 'EW201';
        END IF;
    END IF;
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT w.id
        FROM coordination.wake_ups w
        LEFT JOIN coordination.leases l ON l.name = w.kind || ':' || w.project || ':' || w.ref_id
        WHERE w.kind = 'source_tick' AND w.due_at <= statement_timestamp()
          AND scheduler_app.is_to_be_sent(w.sent_at, l.expires_at, resend_after)
        ORDER BY w.due_at, w.id
        LIMIT batch
        FOR UPDATE OF w SKIP LOCKED
    )
    UPDATE coordination.wake_ups w
    SET sent_at = clock_timestamp(), attempts = w.attempts + 1
    FROM due
    WHERE w.id = due.id
    RETURNING w.queue, w.kind, w.project, w.ref_id;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.claim_due_sources(text, integer, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.claim_due_sources(text, integer, interval) TO evalward_app;
