-- name: insert_schedule
-- When a source ticks; its cursor is now, so that no tick before it counts. No row comes back when the id is taken, by a
-- retired source too. cron_sets: CronSets. No lock.
INSERT INTO scheduler.schedules (tenant_id, id, cron, cron_sets, grammar_version, paused, created_by)
VALUES (%(tenant)s::text, %(id)s::text, %(cron)s::text, %(cron_sets)s::jsonb, %(grammar_version)s::integer,
        %(paused)s::boolean, %(created_by)s::text)
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING cursor_at;

-- name: insert_source
-- What a source pulls. config: SourceConfig; config_sha256: 64 hex digits. No lock.
INSERT INTO evals.sources (tenant_id, id, config, config_sha256)
VALUES (%(tenant)s::text, %(id)s::text, %(config)s::jsonb, %(config_sha256)s::text);

-- name: find_source
-- One source that is not retired, with its schedule. No lock.
SELECT d.tenant_id, d.id, d.cron, d.cron_sets, d.grammar_version, d.cursor_at, d.paused, d.created_at, d.created_by,
       d.updated_at, s.config, s.last_evaluation_id, s.last_attempt_at, s.missed_deadline, s.missed_overlap,
       s.failed_attempts, clock_timestamp() AS now
FROM scheduler.schedules d
JOIN evals.sources s ON s.tenant_id = d.tenant_id AND s.id = d.id
WHERE d.tenant_id = %(tenant)s::text AND d.id = %(id)s::text AND d.retired_at IS NULL;

-- name: read_time
-- The time from which a source would count its ticks if it were made now. No lock.
SELECT clock_timestamp() AS now;

-- name: list_sources
-- Sources that are not retired, by id. after: the last id of the page before, or NULL. No lock.
SELECT d.tenant_id, d.id, d.cron, d.cron_sets, d.grammar_version, d.cursor_at, d.paused, d.created_at, d.created_by,
       d.updated_at, s.config, s.last_evaluation_id, s.last_attempt_at, s.missed_deadline, s.missed_overlap,
       s.failed_attempts, clock_timestamp() AS now
FROM scheduler.schedules d
JOIN evals.sources s ON s.tenant_id = d.tenant_id AND s.id = d.id
WHERE d.tenant_id = %(tenant)s::text AND d.retired_at IS NULL AND (%(after)s::text IS NULL OR d.id > %(after)s::text)
ORDER BY d.id
LIMIT %(limit)s::integer;

-- name: lock_schedule
-- Keep changes of one source apart, and pulls from starting meanwhile. Lock: its schedule's row, until the transaction
-- ends.
SELECT d.paused, d.cursor_at, d.cron, d.cron_sets, d.grammar_version, clock_timestamp() AS now
FROM scheduler.schedules d
WHERE d.tenant_id = %(tenant)s::text AND d.id = %(id)s::text AND d.retired_at IS NULL
FOR UPDATE;

-- name: update_schedule
-- Write a schedule. is_restarted: its cursor becomes now, so that no tick in the past is worked on. Lock: its row, which
-- the caller holds.
UPDATE scheduler.schedules
SET cron = %(cron)s::text, cron_sets = %(cron_sets)s::jsonb, grammar_version = %(grammar_version)s::integer,
    paused = %(paused)s::boolean, updated_at = clock_timestamp(),
    cursor_at = CASE WHEN %(is_restarted)s::boolean THEN clock_timestamp() ELSE cursor_at END
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text AND retired_at IS NULL
RETURNING cursor_at;

-- name: update_source
-- Write what a source pulls. Lock: its row; the caller holds the schedule's.
UPDATE evals.sources
SET config = %(config)s::jsonb, config_sha256 = %(config_sha256)s::text
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text;

-- name: retire_schedule
-- Take a source out of use; its rows stay. No row comes back when it is retired or unknown. Lock: its row.
UPDATE scheduler.schedules
SET retired_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text AND retired_at IS NULL
RETURNING id;

-- name: schedule_source
-- Make a source wake up at an instant, whatever was planned before. due_at: instant. Lock: the wake-up's row.
INSERT INTO coordination.wake_ups AS w (queue, project, kind, ref_id, due_at)
VALUES ('pull', %(project)s::text, %(kind)s::text, %(ref_id)s::text, %(due_at)s::timestamptz)
ON CONFLICT (project, kind, ref_id) DO UPDATE SET due_at = excluded.due_at, sent_at = NULL;

-- name: find_due_source
-- Whether claim_due_sources would find a source: a row if so. Idle sources cost this look at an index and no write. No
-- lock.
SELECT w.id
FROM coordination.wake_ups w
LEFT JOIN coordination.leases l ON l.name = w.kind || ':' || w.project || ':' || w.ref_id
WHERE w.kind = 'source_tick' AND w.due_at <= statement_timestamp()
  AND scheduler_app.is_to_be_sent(
      w.sent_at, l.expires_at, make_interval(secs => %(resend_after_seconds)s::integer))
LIMIT 1;

-- name: claim_due_sources
-- Lead, mark up to batch_size sources as sent and return them; EW201 while another pulse leads. resend_after_seconds:
-- after so long a source that nobody took up is sent again. Locks: the leader's lease, the wake-ups' rows, skipping all
-- that somebody holds, until the commit that follows at once.
SELECT c.queue, c.kind, c.project, c.ref_id
FROM scheduler_app.claim_due_sources(
    %(lease_name)s::text, %(batch_size)s::integer, make_interval(secs => %(resend_after_seconds)s::integer)) AS c;

-- name: read_source_to_pull
-- A source with all that decides its next tick; no row when it is retired or unknown. now: the one clock reading of this
-- decision. last_*: of its latest run, NULL when there is none or it was deleted. has_cut_short: an attempt never told how
-- it ended, if the reader holds the source's lease. Lock: its schedule's row.
SELECT d.cursor_at, d.paused, d.cron_sets, s.config, s.config_sha256, r.created_at AS last_created_at,
       r.finished_at AS last_finished_at, clock_timestamp() AS now,
       EXISTS (SELECT 1
               FROM scheduler.runs t
               JOIN scheduler.graph_jobs g ON g.tenant_id = t.tenant_id AND g.id = t.id
               WHERE t.tenant_id = d.tenant_id AND t.schedule_id = d.id AND t.state = 'planning'
                 AND g.state = 'running') AS has_cut_short
FROM scheduler.schedules d
JOIN evals.sources s ON s.tenant_id = d.tenant_id AND s.id = d.id
LEFT JOIN evals.runs r ON r.tenant_id = s.tenant_id AND r.id = s.last_evaluation_id
WHERE d.tenant_id = %(tenant)s::text AND d.id = %(id)s::text AND d.retired_at IS NULL
FOR UPDATE OF d;

-- name: find_requested_window
-- Of the windows that wait to be run by hand the one whose time comes first: those that were not tried yet, in the order
-- in which they were asked for, then those whose attempt failed. No lock.
SELECT tick_at, window_start, window_end, attempts, exclude_trace_ids, next_attempt_at, deadline_at, evaluation_id
FROM evals.source_windows
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND state = 'requested'
ORDER BY next_attempt_at NULLS FIRST, updated_at, tick_at
LIMIT 1;

-- name: find_window_of_tick
-- The ledger's entry of one tick. No lock.
SELECT state, attempts, next_attempt_at
FROM evals.source_windows
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND tick_at = %(tick_at)s::timestamptz;

-- name: find_window_by_start
-- The latest entry of a single window that begins at an instant. No lock.
SELECT tick_at, window_start, window_end, ticks, state, attempts, traces, error_code, error, trace_id, evaluation_id,
       exclude_trace_ids, requested_by, next_attempt_at, updated_at
FROM evals.source_windows
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND window_start = %(start)s::timestamptz AND ticks = 1
ORDER BY tick_at DESC
LIMIT 1;

-- name: find_gap_of_tick
-- The entry of the gap in which a missed tick lies, named by the last tick of the gap. No lock.
SELECT tick_at, window_start, ticks
FROM evals.source_windows
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND ticks > 1 AND tick_at >= %(tick_at)s::timestamptz
  AND window_start <= %(start)s::timestamptz
LIMIT 1;

-- name: shorten_gap
-- A gap ends with an earlier tick (last_tick_at), as its last ones have entries of their own. ticks: how many it still has,
-- >= 1. Lock: its row.
UPDATE evals.source_windows
SET tick_at = %(last_tick_at)s::timestamptz, window_end = %(last_tick_at)s::timestamptz, ticks = %(ticks)s::bigint
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND tick_at = %(tick_at)s::timestamptz AND ticks > 1;

-- name: list_windows
-- The ledger, newest tick first. state: or NULL for all; after: the last tick of the page before, or NULL. No lock.
SELECT tick_at, window_start, window_end, ticks, state, attempts, traces, error_code, error, trace_id, evaluation_id,
       exclude_trace_ids, requested_by, next_attempt_at, updated_at
FROM evals.source_windows
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text
  AND (%(state)s::text IS NULL OR state = %(state)s::text)
  AND (%(after)s::timestamptz IS NULL OR tick_at < %(after)s::timestamptz)
ORDER BY tick_at DESC
LIMIT %(limit)s::integer;

-- name: insert_missed_windows
-- Note missed ticks; a window that was being worked on keeps its reason and its trace. Arrays in the same order; ticks:
-- more than 1 for a gap. state: missed_deadline or missed_overlap. Lock: the rows that are there.
INSERT INTO evals.source_windows AS w (tenant_id, source_id, tick_at, window_start, window_end, ticks, state)
SELECT %(tenant)s::text, %(id)s::text, m.tick_at, m.window_start, m.window_end, m.ticks, %(state)s::text
FROM unnest(%(tick_ats)s::timestamptz[], %(window_starts)s::timestamptz[], %(window_ends)s::timestamptz[],
            %(ticks)s::bigint[]) AS m (tick_at, window_start, window_end, ticks)
ON CONFLICT (tenant_id, source_id, tick_at) DO UPDATE
SET state = CASE WHEN w.state = 'working' THEN excluded.state ELSE w.state END, next_attempt_at = NULL,
    updated_at = clock_timestamp();

-- name: count_missed
-- Add missed ticks to a source. Lock: its row.
UPDATE evals.sources
SET missed_deadline = missed_deadline + %(deadline)s::bigint, missed_overlap = missed_overlap + %(overlap)s::bigint
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text;

-- name: move_cursor
-- Decide ticks up to one by compare-and-set; no row comes back when the cursor is another one, or the source was paused or
-- retired meanwhile. Lock: the schedule's row.
UPDATE scheduler.schedules
SET cursor_at = %(cursor_at)s::timestamptz
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text AND cursor_at = %(expected)s::timestamptz
  AND NOT paused AND retired_at IS NULL
RETURNING id;

-- name: fail_open_ticks
-- End the ticks of a source that were being planned and whose windows are not open any more. state: error or cancelled.
-- Lock: their rows.
UPDATE scheduler.runs t
SET state = %(state)s::text, finished_at = clock_timestamp()
WHERE t.tenant_id = %(tenant)s::text AND t.schedule_id = %(id)s::text AND t.state = 'planning'
  AND NOT EXISTS (SELECT 1 FROM evals.source_windows w
                  WHERE w.tenant_id = t.tenant_id AND w.source_id = t.schedule_id AND w.tick_at = t.tick_at
                    AND w.state IN ('working', 'requested'))
RETURNING t.id;

-- name: end_graph_jobs
-- End the assembly of ticks that are given up. state: failed or canceled. Lock: their rows.
UPDATE scheduler.graph_jobs
SET state = %(state)s::text, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = ANY(%(ids)s::uuid[]) AND state IN ('queued', 'running');

-- name: begin_tick
-- The row of a tick that is being planned, made at its first attempt. Lock: its row.
INSERT INTO scheduler.runs AS t (tenant_id, schedule_id, tick_at, window_start, window_end)
VALUES (%(tenant)s::text, %(id)s::text, %(tick_at)s::timestamptz, %(window_start)s::timestamptz,
        %(window_end)s::timestamptz)
ON CONFLICT (tenant_id, schedule_id, tick_at) WHERE state = 'planning' DO UPDATE SET state = t.state
RETURNING t.id;

-- name: begin_graph_job
-- Begin an attempt at assembling a window. Lock: its row.
INSERT INTO scheduler.graph_jobs AS g (tenant_id, id, schedule_id, state, attempts)
VALUES (%(tenant)s::text, %(tick_id)s::uuid, %(id)s::text, 'running', 1)
ON CONFLICT (tenant_id, id) DO UPDATE
SET state = 'running', attempts = g.attempts + 1, updated_at = clock_timestamp();

-- name: begin_window
-- Note an attempt at a window. A window that is run by hand stays requested. retry_seconds: when it is tried again should
-- this attempt fail, or its worker die. Lock: its row.
INSERT INTO evals.source_windows AS w (
    tenant_id, source_id, tick_at, window_start, window_end, state, attempts, next_attempt_at)
VALUES (%(tenant)s::text, %(id)s::text, %(tick_at)s::timestamptz, %(window_start)s::timestamptz,
        %(window_end)s::timestamptz, 'working', 1,
        clock_timestamp() + make_interval(secs => %(retry_seconds)s::integer))
ON CONFLICT (tenant_id, source_id, tick_at) DO UPDATE
SET attempts = w.attempts + 1, updated_at = clock_timestamp(), next_attempt_at = excluded.next_attempt_at,
    state = CASE WHEN w.state = 'requested' THEN w.state ELSE 'working' END,
    window_start = excluded.window_start, window_end = excluded.window_end;

-- name: begin_attempt
-- Note when a source was last at work. Lock: its row.
UPDATE evals.sources SET last_attempt_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text;

-- name: fail_window
-- Note why an attempt failed. trace_id: the trace it failed at, or NULL. Lock: its row.
UPDATE evals.source_windows
SET error_code = %(error_code)s::text, error = %(error)s::text, trace_id = %(trace_id)s::text,
    updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND tick_at = %(tick_at)s::timestamptz
RETURNING next_attempt_at;

-- name: count_failed_attempt
-- Add a failed attempt to a source. Lock: its row.
UPDATE evals.sources SET failed_attempts = failed_attempts + 1
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text;

-- name: fail_cut_short_attempts
-- Note why attempts failed that never told: their assembly still runs though another one holds the source's lease. A row
-- comes back for each. Lock: the rows of assemblies and windows.
WITH ended AS (
    UPDATE scheduler.graph_jobs g
    SET state = 'queued', error = %(error_code)s::text, updated_at = clock_timestamp()
    FROM scheduler.runs t
    WHERE t.tenant_id = %(tenant)s::text AND t.schedule_id = %(id)s::text AND t.state = 'planning'
      AND g.tenant_id = t.tenant_id AND g.id = t.id AND g.state = 'running'
    RETURNING t.tick_at
)
UPDATE evals.source_windows w
SET error_code = %(error_code)s::text, error = %(error)s::text, trace_id = NULL, updated_at = clock_timestamp()
FROM ended
WHERE w.tenant_id = %(tenant)s::text AND w.source_id = %(id)s::text AND w.tick_at = ended.tick_at
  AND w.state IN ('working', 'requested')
RETURNING w.tick_at;

-- name: fail_graph_job
-- Note why an assembly failed; it is queued again. Lock: its row.
UPDATE scheduler.graph_jobs
SET state = 'queued', error = %(error)s::text, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(tick_id)s::uuid AND state = 'running';

-- name: complete_graph_job
-- End an assembly. traces: count; snapshot_bytes: size, NULL for an empty window. Lock: its row.
UPDATE scheduler.graph_jobs
SET state = 'completed', traces = %(traces)s::integer, snapshot_bytes = %(snapshot_bytes)s::bigint, error = NULL,
    updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND id = %(tick_id)s::uuid;

-- name: complete_window
-- Note that a window became a run, or that it was empty (evaluation_id NULL; an earlier run of it stays named). Lock: its
-- row.
UPDATE evals.source_windows
SET state = CASE WHEN %(evaluation_id)s::uuid IS NULL THEN 'empty' ELSE 'done' END, traces = %(traces)s::integer,
    evaluation_id = coalesce(%(evaluation_id)s::uuid, evaluation_id), error_code = NULL, error = NULL, trace_id = NULL,
    next_attempt_at = NULL, deadline_at = NULL, state_before = NULL, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND tick_at = %(tick_at)s::timestamptz;

-- name: complete_tick
-- A tick whose window was empty has ended; one that became a run follows it from here on. Lock: its row.
UPDATE scheduler.runs
SET state = CASE WHEN %(evaluation_id)s::uuid IS NULL THEN 'completed' ELSE 'queued' END,
    finished_at = CASE WHEN %(evaluation_id)s::uuid IS NULL THEN clock_timestamp() END,
    evaluation_id = %(evaluation_id)s::uuid
WHERE tenant_id = %(tenant)s::text AND id = %(tick_id)s::uuid;

-- name: note_latest_run
-- Note the run that a source waits for before it starts another. Lock: its row.
UPDATE evals.sources SET last_evaluation_id = %(evaluation_id)s::uuid
WHERE tenant_id = %(tenant)s::text AND id = %(id)s::text;

-- name: insert_source_run
-- Insert the pending run of a window; no row comes back when it is there already. config: RunConfig; config_sha256: 64 hex
-- digits. No lock.
INSERT INTO evals.runs (
    tenant_id, id, name, source_id, window_start, window_end, config, config_sha256, records_total, created_by)
VALUES (%(tenant)s::text, %(run_id)s::uuid, %(name)s::text, %(id)s::text, %(window_start)s::timestamptz,
        %(window_end)s::timestamptz, %(config)s::jsonb, %(config_sha256)s::text, %(records)s::integer,
        %(created_by)s::text)
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING id;

-- name: insert_source_snapshot
-- Pin the records of a window. redactions: replacements by kind; excluded: ids of traces that were passed over. No lock.
INSERT INTO evals.run_snapshots (tenant_id, run_id, sha256, path, records, bytes, redactions, excluded_trace_ids)
VALUES (%(tenant)s::text, %(run_id)s::uuid, %(sha256)s::text, %(path)s::text, %(records)s::integer, %(bytes)s::bigint,
        %(redactions)s::jsonb, %(excluded)s::text[]);

-- name: request_window
-- Ask for a window to be run by hand. state: what it is, for when that comes to nothing; deadline_seconds: how long it is
-- tried, > 0. Lock: its row.
INSERT INTO evals.source_windows AS w (
    tenant_id, source_id, tick_at, window_start, window_end, state, state_before, exclude_trace_ids, requested_by,
    deadline_at)
VALUES (%(tenant)s::text, %(id)s::text, %(tick_at)s::timestamptz, %(window_start)s::timestamptz,
        %(window_end)s::timestamptz, 'requested', %(state)s::text, %(exclude_trace_ids)s::text[],
        %(requested_by)s::text, clock_timestamp() + make_interval(secs => %(deadline_seconds)s::integer))
ON CONFLICT (tenant_id, source_id, tick_at) DO UPDATE
SET state = 'requested', state_before = coalesce(w.state_before, excluded.state_before), attempts = 0, exclude_trace_ids = excluded.exclude_trace_ids,
    requested_by = excluded.requested_by, deadline_at = excluded.deadline_at, next_attempt_at = NULL, error_code = NULL,
    error = NULL, trace_id = NULL, updated_at = clock_timestamp();

-- name: exclude_traces_of_window
-- Pass over traces of a window that is being worked on, and try it again at once. Lock: its row.
UPDATE evals.source_windows
SET exclude_trace_ids = %(exclude_trace_ids)s::text[], requested_by = %(requested_by)s::text, next_attempt_at = NULL,
    updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND tick_at = %(tick_at)s::timestamptz
  AND state = 'working';

-- name: end_requested_window
-- Stop trying a window that was asked for by hand: it is again what it was. Lock: its row.
UPDATE evals.source_windows
SET state = state_before, state_before = NULL, next_attempt_at = NULL, deadline_at = NULL, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND tick_at = %(tick_at)s::timestamptz
  AND state = 'requested';

-- name: skip_windows
-- Give up windows that are open; one that was read before and was to be read again is what it was. states: requested,
-- working or both; tick_at: of the only one, or NULL for all. Lock: their rows.
UPDATE evals.source_windows
SET state = CASE WHEN state_before IN ('done', 'empty') THEN state_before ELSE 'skipped' END, state_before = NULL,
    next_attempt_at = NULL, deadline_at = NULL, updated_at = clock_timestamp()
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND state = ANY(%(states)s::text[])
  AND (%(tick_at)s::timestamptz IS NULL OR tick_at = %(tick_at)s::timestamptz);

-- name: read_excluded_traces
-- Which traces of a window are passed over. No lock.
SELECT exclude_trace_ids
FROM evals.source_windows
WHERE tenant_id = %(tenant)s::text AND source_id = %(id)s::text AND tick_at = %(tick_at)s::timestamptz;

-- name: read_source_summary
-- The latest tick of a source that is still kept, and how many are. No lock.
SELECT t.tick_at, t.window_start, t.window_end, t.state, t.evaluation_id, t.created_at, t.finished_at,
       r.state AS run_state, r.records_total, r.results_scored, r.results_skipped, r.results_errors
FROM scheduler.runs t
LEFT JOIN evals.runs r ON r.tenant_id = t.tenant_id AND r.id = t.evaluation_id
WHERE t.tenant_id = %(tenant)s::text AND t.schedule_id = %(id)s::text
ORDER BY t.created_at DESC, t.id DESC
LIMIT 1;

-- name: measure_source_lag
-- How far the sources of a project are behind: active ones, those behind, and the one that is most. A source is behind
-- while a window of it is being tried after its settle time, or when nobody has looked at it for patience_seconds (> 0)
-- since its time came. worst_*: NULL when none is behind. No lock.
WITH looked_at AS (
    SELECT s.id, o.error_code, o.trace_id,
           extract(epoch FROM clock_timestamp() - least(
               o.tick_at + make_interval(secs => (s.config ->> 'settle_seconds')::integer),
               CASE WHEN w.due_at <= clock_timestamp() - make_interval(secs => %(patience_seconds)s::integer)
                    THEN w.due_at END)) AS lag_seconds
    FROM scheduler.schedules d
    JOIN evals.sources s ON s.tenant_id = d.tenant_id AND s.id = d.id
    LEFT JOIN coordination.wake_ups w ON w.project = d.tenant_id AND w.kind = 'source_tick' AND w.ref_id = d.id
    LEFT JOIN LATERAL (
        SELECT x.tick_at, x.error_code, x.trace_id
        FROM evals.source_windows x
        WHERE x.tenant_id = d.tenant_id AND x.source_id = d.id AND x.state = 'working'
        ORDER BY x.tick_at
        LIMIT 1) o ON true
    WHERE d.tenant_id = %(tenant)s::text AND d.retired_at IS NULL AND NOT d.paused
), worst AS (
    SELECT l.id, l.error_code, l.trace_id, l.lag_seconds
    FROM looked_at l
    WHERE l.lag_seconds > 0
    ORDER BY l.lag_seconds DESC, l.id
    LIMIT 1
)
SELECT (SELECT count(*) FROM looked_at) AS active, (SELECT count(*) FROM looked_at l WHERE l.lag_seconds > 0) AS behind,
       worst.id AS worst_source, worst.lag_seconds::double precision AS worst_lag_seconds,
       worst.error_code AS worst_error_code, worst.trace_id AS worst_trace_id
FROM (VALUES (1)) AS one (n)
LEFT JOIN worst ON true;

-- name: count_missed_reasons
-- What a project's sources in use missed in the last period_seconds, by source and reason: why the last attempt failed,
-- `overlap` when a run was in the way, `not_begun` when there was no attempt. windows: entries of the ledger, one for a
-- gap of many ticks. A tick is missed up to its starting deadline after its time: that bounds the search, and the entry
-- says when it was. No lock.
SELECT d.id AS source_id,
       coalesce(w.error_code, CASE w.state WHEN 'missed_overlap' THEN 'overlap' ELSE 'not_begun' END) AS reason,
       count(*) AS windows, sum(w.ticks)::bigint AS ticks, max(w.tick_at) AS last_tick_at
FROM scheduler.schedules d
JOIN evals.sources s ON s.tenant_id = d.tenant_id AND s.id = d.id
JOIN evals.source_windows w ON w.tenant_id = d.tenant_id AND w.source_id = d.id
WHERE d.tenant_id = %(tenant)s::text AND d.retired_at IS NULL AND w.state IN ('missed_deadline', 'missed_overlap')
  AND w.tick_at >= clock_timestamp() - make_interval(
      secs => %(period_seconds)s::integer + (s.config ->> 'starting_deadline_seconds')::integer)
  AND w.updated_at >= clock_timestamp() - make_interval(secs => %(period_seconds)s::integer)
GROUP BY d.id, coalesce(w.error_code, CASE w.state WHEN 'missed_overlap' THEN 'overlap' ELSE 'not_begun' END)
ORDER BY ticks DESC, d.id, reason;

-- name: find_orphaned_snapshots
-- Ids of runs, out of those below which objects lie, that do not exist or have another snapshot than one of these. run_ids,
-- sha256s: in the same order. No lock.
SELECT DISTINCT o.run_id
FROM unnest(%(run_ids)s::uuid[], %(sha256s)s::text[]) AS o (run_id, sha256)
WHERE NOT EXISTS (
    SELECT 1 FROM evals.run_snapshots s
    WHERE s.tenant_id = %(tenant)s::text AND s.run_id = o.run_id AND s.sha256 = o.sha256);

-- name: find_snapshot_of_run
-- The snapshot that a run evaluates; no row when the run is gone. No lock.
SELECT path
FROM evals.run_snapshots
WHERE tenant_id = %(tenant)s::text AND run_id = %(run_id)s::uuid;
