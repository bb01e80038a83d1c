-- Terminal cleanup: indexes, views, one routine a table, receipts.
SET LOCAL lock_timeout = '5s';

-- Terminal rows by age: what the keeper walks. Active and incomplete rows: what the doctor counts.
CREATE INDEX IF NOT EXISTS jobs_terminal ON scheduler.jobs (tenant_id, completed_at, id)
    WHERE state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND completed_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_active ON scheduler.jobs (tenant_id, id)
    WHERE state IN ('queued', 'running');
CREATE INDEX IF NOT EXISTS jobs_incomplete ON scheduler.jobs (tenant_id, id)
    WHERE state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND completed_at IS NULL;
CREATE INDEX IF NOT EXISTS runs_terminal ON scheduler.runs (tenant_id, finished_at, id)
    WHERE state IN ('completed', 'error', 'cancelled') AND finished_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_active ON scheduler.runs (tenant_id, id)
    WHERE state IN ('planning', 'queued', 'running');
CREATE INDEX IF NOT EXISTS runs_incomplete ON scheduler.runs (tenant_id, id)
    WHERE state IN ('completed', 'error', 'cancelled') AND finished_at IS NULL;
CREATE INDEX IF NOT EXISTS graph_jobs_terminal ON scheduler.graph_jobs (tenant_id, updated_at, id)
    WHERE state IN ('completed', 'failed', 'canceled');
CREATE INDEX IF NOT EXISTS graph_jobs_active ON scheduler.graph_jobs (tenant_id, id)
    WHERE state IN ('queued', 'running');
CREATE INDEX IF NOT EXISTS policy_run_jobs_terminal ON scheduler.policy_run_jobs (tenant_id, updated_at, id)
    WHERE state IN ('completed', 'failed', 'cancelled');
CREATE INDEX IF NOT EXISTS policy_run_jobs_active ON scheduler.policy_run_jobs (tenant_id, id)
    WHERE state IN ('queued', 'running');
CREATE INDEX IF NOT EXISTS estate_run_queue_terminal ON scheduler.estate_run_queue (tenant_id, completed_at, id)
    WHERE acknowledged_at IS NOT NULL AND outcome IS NOT NULL AND completed_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS estate_run_queue_active ON scheduler.estate_run_queue (tenant_id, id)
    WHERE completed_at IS NULL AND outcome IS NULL;
CREATE INDEX IF NOT EXISTS estate_run_queue_incomplete ON scheduler.estate_run_queue (tenant_id, id)
    WHERE (completed_at IS NOT NULL OR outcome IS NOT NULL)
          AND (acknowledged_at IS NULL OR completed_at IS NULL OR outcome IS NULL);
CREATE INDEX IF NOT EXISTS pack_storage_outbox_terminal ON packs.pack_storage_outbox (tenant_id, published_at, id)
    WHERE published_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS pack_storage_outbox_active ON packs.pack_storage_outbox (tenant_id, id)
    WHERE published_at IS NULL;
CREATE INDEX IF NOT EXISTS failure_signatures_terminal ON scheduler.failure_signatures (tenant_id, resolved_at, id)
    WHERE state = 'resolved' AND resolved_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS failure_signatures_active ON scheduler.failure_signatures (tenant_id, id)
    WHERE state IN ('unresolved', 'investigating', 'wont_fix');
CREATE INDEX IF NOT EXISTS failure_signatures_incomplete ON scheduler.failure_signatures (tenant_id, id)
    WHERE state = 'resolved' AND resolved_at IS NULL;
CREATE INDEX IF NOT EXISTS workers_terminal ON scheduler.workers (heartbeat_at, id)
    WHERE state = 'stopped' AND active_count = 0;
CREATE INDEX IF NOT EXISTS workers_active ON scheduler.workers (id)
    WHERE state IN ('active', 'draining') OR active_count > 0;
CREATE INDEX IF NOT EXISTS job_history_terminal ON scheduler.job_history (tenant_id, completed_at, id);

-- What a tenant's terminal rows are, of each table: when they ended, and whether a lease or a trigger still needs them.
-- Plain enough to be expanded into the statements that ask. STABLE: a lease counts as live from the statement's beginning.

-- Terminal rows of scheduler.jobs.
CREATE FUNCTION scheduler_app.terminal_jobs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.completed_at, t.id, EXISTS (
               SELECT 1 FROM scheduler.triggers g WHERE g.tenant_id = t.tenant_id AND g.last_job_id = t.id)
           OR EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = CASE t.kind WHEN 'dataset_import' THEN 'import:' WHEN 'webhook_delivery' THEN 'webhook:'
                                          ELSE 'sink:' END || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
    FROM scheduler.jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND t.completed_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_jobs(text) TO evalward_app;

-- Terminal rows of scheduler.runs.
CREATE FUNCTION scheduler_app.terminal_runs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.finished_at, t.id, false
    FROM scheduler.runs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'error', 'cancelled') AND t.finished_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_runs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_runs(text) TO evalward_app;

-- Terminal rows of scheduler.graph_jobs.
CREATE FUNCTION scheduler_app.terminal_graph_jobs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.updated_at, t.id, false
    FROM scheduler.graph_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'canceled')
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_graph_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_graph_jobs(text) TO evalward_app;

-- Terminal rows of scheduler.policy_run_jobs.
CREATE FUNCTION scheduler_app.terminal_policy_run_jobs(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.updated_at, t.id, EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = 'shard:' || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
    FROM scheduler.policy_run_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'cancelled')
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_policy_run_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_policy_run_jobs(text) TO evalward_app;

-- Terminal rows of scheduler.estate_run_queue.
CREATE FUNCTION scheduler_app.terminal_estate_run_queue(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.completed_at, t.id, EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = 'run:' || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
           OR EXISTS (
               SELECT 1 FROM coordination.leases l
               WHERE l.name = 'finish:' || t.tenant_id || ':' || t.id
                 AND l.expires_at > statement_timestamp())
    FROM scheduler.estate_run_queue t
    WHERE t.tenant_id = tenant AND t.acknowledged_at IS NOT NULL AND t.outcome IS NOT NULL AND t.completed_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_estate_run_queue(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_estate_run_queue(text) TO evalward_app;

-- Terminal rows of packs.pack_storage_outbox.
CREATE FUNCTION scheduler_app.terminal_pack_storage_outbox(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.published_at, t.id, false
    FROM packs.pack_storage_outbox t
    WHERE t.tenant_id = tenant AND t.published_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_pack_storage_outbox(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_pack_storage_outbox(text) TO evalward_app;

-- Terminal rows of scheduler.failure_signatures.
CREATE FUNCTION scheduler_app.terminal_failure_signatures(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.resolved_at, t.id, false
    FROM scheduler.failure_signatures t
    WHERE t.tenant_id = tenant AND t.state = 'resolved' AND t.resolved_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_failure_signatures(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_failure_signatures(text) TO evalward_app;

-- Terminal rows of scheduler.workers.
CREATE FUNCTION scheduler_app.terminal_workers()
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.heartbeat_at, t.id, false
    FROM scheduler.workers t
    WHERE t.state = 'stopped' AND t.active_count = 0
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_workers() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_workers() TO evalward_app;

-- Terminal rows of scheduler.job_history.
CREATE FUNCTION scheduler_app.terminal_job_history(tenant text)
    RETURNS TABLE (ended_at timestamptz, id uuid, is_guarded boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT t.completed_at, t.id, false
    FROM scheduler.job_history t
    WHERE t.tenant_id = tenant
$$;
REVOKE ALL ON FUNCTION scheduler_app.terminal_job_history(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.terminal_job_history(text) TO evalward_app;

-- A tenant's rows that are not terminal, and those that say they are but lack what their end must have: never deleted.

-- Open rows of scheduler.jobs.
CREATE FUNCTION scheduler_app.open_jobs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('queued', 'running')
    UNION ALL
    SELECT true FROM scheduler.jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND t.completed_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_jobs(text) TO evalward_app;

-- Open rows of scheduler.runs.
CREATE FUNCTION scheduler_app.open_runs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.runs t
    WHERE t.tenant_id = tenant AND t.state IN ('planning', 'queued', 'running')
    UNION ALL
    SELECT true FROM scheduler.runs t
    WHERE t.tenant_id = tenant AND t.state IN ('completed', 'error', 'cancelled') AND t.finished_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_runs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_runs(text) TO evalward_app;

-- Open rows of scheduler.graph_jobs.
CREATE FUNCTION scheduler_app.open_graph_jobs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.graph_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('queued', 'running')
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_graph_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_graph_jobs(text) TO evalward_app;

-- Open rows of scheduler.policy_run_jobs.
CREATE FUNCTION scheduler_app.open_policy_run_jobs(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.policy_run_jobs t
    WHERE t.tenant_id = tenant AND t.state IN ('queued', 'running')
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_policy_run_jobs(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_policy_run_jobs(text) TO evalward_app;

-- Open rows of scheduler.estate_run_queue.
CREATE FUNCTION scheduler_app.open_estate_run_queue(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.estate_run_queue t
    WHERE t.tenant_id = tenant AND t.completed_at IS NULL AND t.outcome IS NULL
    UNION ALL
    SELECT true FROM scheduler.estate_run_queue t
    WHERE t.tenant_id = tenant AND (t.completed_at IS NOT NULL OR t.outcome IS NOT NULL)
      AND (t.acknowledged_at IS NULL OR t.completed_at IS NULL OR t.outcome IS NULL)
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_estate_run_queue(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_estate_run_queue(text) TO evalward_app;

-- Open rows of packs.pack_storage_outbox.
CREATE FUNCTION scheduler_app.open_pack_storage_outbox(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM packs.pack_storage_outbox t
    WHERE t.tenant_id = tenant AND t.published_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_pack_storage_outbox(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_pack_storage_outbox(text) TO evalward_app;

-- Open rows of scheduler.failure_signatures.
CREATE FUNCTION scheduler_app.open_failure_signatures(tenant text)
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.failure_signatures t
    WHERE t.tenant_id = tenant AND t.state IN ('unresolved', 'investigating', 'wont_fix')
    UNION ALL
    SELECT true FROM scheduler.failure_signatures t
    WHERE t.tenant_id = tenant AND t.state = 'resolved' AND t.resolved_at IS NULL
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_failure_signatures(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_failure_signatures(text) TO evalward_app;

-- Open rows of scheduler.workers.
CREATE FUNCTION scheduler_app.open_workers()
    RETURNS TABLE (is_incomplete boolean)
    LANGUAGE sql
    STABLE
AS $$
    SELECT false FROM scheduler.workers t
    WHERE (t.state IN ('active', 'draining') OR t.active_count > 0)
$$;
REVOKE ALL ON FUNCTION scheduler_app.open_workers() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.open_workers() TO evalward_app;

-- How many rows of a table have expired: those between (after, before) of (age, id) that nothing protects, counted up to
-- row_cap (>= 1), and when the oldest of them ended. tenant: NULL for scheduler.workers. Read-only, no lock.
CREATE FUNCTION scheduler_app.measure_expired(
    table_name text, tenant text, before_at timestamptz, before_id uuid, after_at timestamptz, after_id uuid,
    row_cap integer)
    RETURNS TABLE (expired integer, oldest_at timestamptz)
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT count(*)::integer, min(e.ended_at) FROM ('
        '    SELECT t.ended_at FROM scheduler_app.%I(%s) AS t WHERE NOT t.is_guarded AND (t.ended_at, t.id) < ($2, $3)'
        '      AND (t.ended_at, t.id) > ($4, $5)'
        '    ORDER BY t.ended_at, t.id LIMIT $6) AS e',
        'terminal_' || split_part(table_name, '.', 2), CASE WHEN tenant IS NULL THEN '' ELSE '$1' END)
    USING tenant, before_at, before_id, after_at, after_id, row_cap;
END
$$;

-- What a table holds for a tenant, each count at most row_cap (>= 1), so that a huge backlog costs no more than a small one.
-- expired: of the eligible, those before (before_at, before_id), with the age of the oldest; protected: open rows, and
-- terminal ones that a lease or a trigger needs. tenant: NULL for scheduler.workers. Read-only, no lock.
CREATE FUNCTION scheduler_app.measure_table(
    table_name text, tenant text, before_at timestamptz, before_id uuid, row_cap integer)
    RETURNS TABLE (eligible integer, expired integer, protected integer, incomplete integer, oldest_at timestamptz)
    LANGUAGE plpgsql
    STABLE
AS $$
DECLARE
    tenant_argument text := CASE WHEN tenant IS NULL THEN '' ELSE '$1' END;
    bare_name text := split_part(table_name, '.', 2);
    terminal text := format('scheduler_app.%I(%s) AS t', 'terminal_' || bare_name, tenant_argument);
    open text := format('scheduler_app.%I(%s) AS o', 'open_' || bare_name, tenant_argument);
BEGIN
    RETURN QUERY EXECUTE
        'SELECT (SELECT count(*) FROM (SELECT 1 FROM ' || terminal || ' WHERE NOT t.is_guarded LIMIT $4) AS e)::integer,'
        ' x.expired, (g.guarded + a.active)::integer,'
        ' (SELECT count(*) FROM (SELECT 1 FROM ' || open || ' WHERE o.is_incomplete LIMIT $4) AS i)::integer, x.oldest_at'
        ' FROM scheduler_app.measure_expired($5, $1, $2, $3, ''-infinity'', $3, $4) AS x,'
        ' (SELECT count(*) FILTER (WHERE w.is_guarded) AS guarded FROM (SELECT t.is_guarded FROM ' || terminal
        || ' LIMIT $4) AS w) AS g,'
        ' (SELECT count(*) AS active FROM (SELECT 1 FROM ' || open || ' WHERE NOT o.is_incomplete LIMIT $4) AS o) AS a'
    USING tenant, before_at, before_id, row_cap, table_name;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.measure_expired(text, text, timestamptz, uuid, timestamptz, uuid, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.measure_table(text, text, timestamptz, uuid, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.measure_expired(text, text, timestamptz, uuid, timestamptz, uuid, integer)
    TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.measure_table(text, text, timestamptz, uuid, integer) TO evalward_app;

-- For what is only done again when a crash of the server loses it (a mark, a deletion): the transaction's COMMIT answers
-- before the disk does.
CREATE FUNCTION scheduler_app.commit_without_waiting()
    RETURNS void
    LANGUAGE plpgsql
    VOLATILE
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.commit_without_waiting() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.commit_without_waiting() TO evalward_app;

-- Two routines a table. find_expired_*: the place (age, id) before which rows go: those that ended before expired_before,
-- and the oldest of those beyond the newest row_budget (>= 1; NULL: no budget) that nothing protects; and whether there is
-- one. Costs row_budget steps in an index at most, and one for each protected row on the way. Read-only, no lock.
--
-- expire_*: one call a batch, each in a transaction of its own. Rows that ended between (after, before) of (age, id) go,
-- oldest first, at most `batch` (>= 1) of them. Returns how many were selected and deleted, of a full batch the place of
-- the last one, after which the next begins instead of walking over what the batches before it left dead, and whether rows
-- may have been passed over.
--
-- At first the place of the last row of a full batch is found in the index, and all that ends there is deleted; should
-- there be more than `batch` by then, that is undone and done the second way. The DELETE carries the whole condition, in a
-- snapshot of its own, and PostgreSQL looks at it again in the newest version of a row that somebody has changed
-- meanwhile. It waits for a locked row no longer than 20 ms. Then, and when a trigger has taken up a job meanwhile, rows
-- are chosen that nobody holds: the choice is MATERIALIZED because a plan may otherwise run it, with its LIMIT, once for
-- each row it is joined to; its rows are found again by the place where they are locked; the condition is repeated,
-- between the bounds of the batch, so that a plan that walks the index again does not walk the whole backlog. That costs
-- twice as much, rows being locked and then deleted. A lease counts as live from the beginning of the call, before any
-- snapshot: one that is renewed meanwhile has not run out.
--
-- Plans are kept and walk the index in its order, may neither read a table whole nor sort it: the planner knows nothing
-- of `batch` and often nothing of the table, and a bitmap takes three times as long (measured). Rows are counted, not
-- returned, which took a third of the time (measured). The commit does not wait for the disk: what a crash brings back is
-- swept again, and the receipt, which waits, comes after it. Locks: the rows. Raises EW001 without a tenant, EW003 for
-- another than the transaction's.
--
-- The routines are one text with the names, the age and the condition of each table in it, and what becomes of what was
-- deleted: jobs leave their outcomes in the history, in the same statement.
DO $make$
DECLARE
    template text := $template$
-- Finds what has expired in {table}.
CREATE FUNCTION scheduler_app.find_expired_{routine}({tenant}expired_before timestamptz, row_budget integer)
    RETURNS TABLE (before_at timestamptz, before_id uuid, is_expired boolean)
    LANGUAGE plpgsql
    STABLE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
BEGIN
    IF row_budget IS NOT NULL THEN
        SELECT {age}, t.id INTO before_at, before_id
        FROM {table} t
        WHERE {condition}
        ORDER BY {age} DESC, t.id DESC
        OFFSET row_budget - 1
        LIMIT 1;
    END IF;
    IF before_at IS NULL OR before_at < expired_before THEN
        before_at := expired_before;
        before_id := '00000000-0000-0000-0000-000000000000';
    END IF;
    PERFORM FROM {table} t
    WHERE {condition}
      AND ({age}, t.id) < (before_at, before_id)
    ORDER BY {age}, t.id
    LIMIT 1;
    is_expired := FOUND;
    RETURN NEXT;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.find_expired_{routine} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.find_expired_{routine} TO evalward_app;

-- Deletes one batch of {table}.
CREATE FUNCTION scheduler_app.expire_{routine}(
    {tenant}before_at timestamptz, before_id uuid, after_at timestamptz, after_id uuid, batch integer)
    RETURNS TABLE (
        selected integer, deleted integer, last_at timestamptz, last_id uuid, may_have_passed_over boolean)
    LANGUAGE plpgsql
    VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
BEGIN
    {check}
    PERFORM scheduler_app.commit_without_waiting();
    BEGIN
        PERFORM set_config('lock_timeout', '20ms', true);
        SELECT {age}, t.id INTO last_at, last_id
        FROM {table} t
        WHERE {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
        ORDER BY {age}, t.id
        OFFSET batch - 1
        LIMIT 1;
        IF FOUND THEN
            selected := batch;
        ELSE
            last_at := before_at;
            last_id := before_id;
        END IF;
        {beforehand}DELETE FROM {table} t
        WHERE {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
          AND ({age}, t.id) <= (last_at, last_id){afterwards};
        GET DIAGNOSTICS deleted = ROW_COUNT;
        IF deleted > batch THEN
            RAISE EXCEPTION 'more rows than the batch' USING ERRCODE = 'lock_not_available';
        END IF;
        selected := coalesce(selected, deleted);
        may_have_passed_over := false;
        RETURN NEXT;
        RETURN;
    EXCEPTION
        WHEN lock_not_available OR foreign_key_violation THEN
            -- What follows takes the others. The time-out is as before the block.
            NULL;
    END;
    RETURN QUERY
    WITH candidates AS MATERIALIZED (
        SELECT t.id, t.ctid AS place, {age} AS ended_at
        FROM {table} t
        WHERE {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
        ORDER BY {age}, t.id
        LIMIT batch
        FOR UPDATE OF t SKIP LOCKED
    ), last AS MATERIALIZED (
        SELECT c.ended_at, c.id FROM candidates c ORDER BY c.ended_at DESC, c.id DESC LIMIT 1
    ), gone AS (
        DELETE FROM {table} t
        USING candidates c
        WHERE t.ctid = c.place
          AND {condition}
          AND ({age}, t.id) < (before_at, before_id)
          AND ({age}, t.id) > (after_at, after_id)
          AND ({age}, t.id) <= ((SELECT l.ended_at FROM last l), (SELECT l.id FROM last l))
        RETURNING {returned}
    ){archived}
    SELECT (SELECT count(*) FROM candidates)::integer, (SELECT count(*) FROM gone)::integer, l.ended_at, l.id, true
    FROM (SELECT 1) AS one
    LEFT JOIN last AS l ON true;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.expire_{routine} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.expire_{routine} TO evalward_app;
$template$;
    archive text := $archive$
        INSERT INTO scheduler.job_history AS h (
            tenant_id, id, kind, state, dedupe_key, attempts, result, error, created_at, created_by, started_at,
            completed_at)
        SELECT gone.tenant_id, gone.id, gone.kind, gone.state, gone.dedupe_key, gone.attempts, gone.result, gone.error,
               gone.created_at, gone.created_by, gone.started_at, gone.completed_at
        FROM gone
        -- The job of a delivery or a sink may be opened again under its id after it was swept: the later outcome counts.
        ON CONFLICT (tenant_id, id) DO UPDATE
        SET state = excluded.state, attempts = excluded.attempts, result = excluded.result, error = excluded.error,
            created_at = excluded.created_at, created_by = excluded.created_by, started_at = excluded.started_at,
            completed_at = excluded.completed_at, archived_at = clock_timestamp()$archive$;
    returned_jobs text := 't.tenant_id, t.id, t.kind, t.state, t.dedupe_key, t.attempts, t.result, t.error, t.created_at,
                  t.created_by, t.started_at, t.completed_at';
    made record;
    part record;
    routine text;
BEGIN
    FOR made IN
        SELECT g.routine, g."table", g.age, g.condition,
               CASE g.routine WHEN 'workers' THEN '' ELSE 'tenant text, ' END AS tenant,
               CASE g.routine WHEN 'workers' THEN ''
                              ELSE 'PERFORM scheduler_app.raise_unless_tenant(tenant);' END AS "check",
               CASE g.routine WHEN 'jobs' THEN returned_jobs ELSE 't.id' END AS returned,
               CASE g.routine WHEN 'jobs' THEN 'WITH gone AS (' ELSE '' END AS beforehand,
               CASE g.routine WHEN 'jobs' THEN ' RETURNING ' || returned_jobs || ')' || archive ELSE '' END AS afterwards,
               CASE g.routine WHEN 'jobs' THEN ', archived AS (' || archive || ')' ELSE '' END AS archived
        FROM (VALUES
            ('jobs', 'scheduler.jobs', 't.completed_at',
             $$t.tenant_id = tenant AND t.state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND t.completed_at IS NOT NULL
             AND NOT EXISTS (
                 SELECT 1 FROM scheduler.triggers g WHERE g.tenant_id = t.tenant_id AND g.last_job_id = t.id)
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = CASE t.kind WHEN 'dataset_import' THEN 'import:' WHEN 'webhook_delivery' THEN 'webhook:'
                                            ELSE 'sink:' END || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())$$),
            ('runs', 'scheduler.runs', 't.finished_at',
             $$t.tenant_id = tenant AND t.state IN ('completed', 'error', 'cancelled') AND t.finished_at IS NOT NULL$$),
            ('graph_jobs', 'scheduler.graph_jobs', 't.updated_at',
             $$t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'canceled')$$),
            ('policy_run_jobs', 'scheduler.policy_run_jobs', 't.updated_at',
             $$t.tenant_id = tenant AND t.state IN ('completed', 'failed', 'cancelled')
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = 'shard:' || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())$$),
            ('estate_run_queue', 'scheduler.estate_run_queue', 't.completed_at',
             $$t.tenant_id = tenant AND t.acknowledged_at IS NOT NULL AND t.outcome IS NOT NULL AND t.completed_at IS NOT NULL
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = 'run:' || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())
             AND NOT EXISTS (
                 SELECT 1 FROM coordination.leases l
                 WHERE l.name = 'finish:' || t.tenant_id || ':' || t.id
                   AND l.expires_at > statement_timestamp())$$),
            ('pack_storage_outbox', 'packs.pack_storage_outbox', 't.published_at',
             $$t.tenant_id = tenant AND t.published_at IS NOT NULL$$),
            ('failure_signatures', 'scheduler.failure_signatures', 't.resolved_at',
             $$t.tenant_id = tenant AND t.state = 'resolved' AND t.resolved_at IS NOT NULL$$),
            ('workers', 'scheduler.workers', 't.heartbeat_at',
             $$t.state = 'stopped' AND t.active_count = 0$$),
            ('job_history', 'scheduler.job_history', 't.completed_at',
             $$t.tenant_id = tenant$$)
        ) AS g (routine, "table", age, condition)
    LOOP
        routine := template;
        FOR part IN SELECT * FROM jsonb_each_text(to_jsonb(made)) LOOP
            routine := replace(routine, '{' || part.key || '}', part.value);
        END LOOP;
        EXECUTE routine;
    END LOOP;
END
$make$;

-- What has expired in the given tables of a tenant (NULL: scheduler.workers): a row for each in which something has, with
-- the place before which its rows go. The arrays belong together: for each table its cut-off and its budget of rows.
-- Read-only, no lock.
CREATE FUNCTION scheduler_app.find_expired(
    tenant text, table_names text[], expired_before timestamptz[], row_budgets integer[])
    RETURNS TABLE (table_name text, before_at timestamptz, before_id uuid)
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    FOR number IN 1 .. cardinality(table_names) LOOP
        RETURN QUERY EXECUTE format(
            'SELECT $1, f.before_at, f.before_id FROM scheduler_app.%I(%s$3, $4) AS f WHERE f.is_expired',
            'find_expired_' || split_part(table_names[number], '.', 2),
            CASE WHEN tenant IS NULL THEN '' ELSE '$2, ' END)
        USING table_names[number], tenant, expired_before[number], row_budgets[number];
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION scheduler_app.find_expired(text, text[], timestamptz[], integer[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.find_expired(text, text[], timestamptz[], integer[]) TO evalward_app;

-- What each sweep of the keeper did; the newest 90 are kept. Holds no tenant but the one the next sweep goes on after.
CREATE TABLE scheduler.sweep_receipts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    scope_count integer NOT NULL CHECK (scope_count >= 0),
    failed_scope_count integer NOT NULL CHECK (failed_scope_count >= 0),
  
    stopped_after text,
  
    tables jsonb NOT NULL,
    CHECK (finished_at >= started_at)
);
CREATE INDEX sweep_receipts_by_time ON scheduler.sweep_receipts (started_at DESC, id DESC);
GRANT SELECT, INSERT, DELETE ON scheduler.sweep_receipts TO evalward_app;
-- The first sweep waits for a while after the installation, whose time the ledger knows.
GRANT SELECT ON coordination.schema_migrations TO evalward_app;
