-- Drops four tables of an adopted JobEngine database that nothing writes or reads any more, each only when it is empty.
-- Runs as their owner. FORCE is taken off inside the lock only, so that no row is hidden by a tenant's policy; whatever
-- is refused rolls the flags back with everything else.
SET LOCAL lock_timeout = '5s';

DO $$
DECLARE
    retired text;
    has_rows boolean;
    populated text[] := '{}';
    present text[] := ARRAY(
        SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'scheduler' AND c.relkind IN ('r', 'p')
          AND c.relname IN ('doctor_trends', 'execution_logs', 'graph_job_events', 'run_summaries')
        ORDER BY c.relname);
BEGIN
    -- All of them before the first look: none can be filled while another one is looked at.
    FOREACH retired IN ARRAY present LOOP
        EXECUTE 'LOCK TABLE ' || retired || ' IN ACCESS EXCLUSIVE MODE';
    END LOOP;
    FOREACH retired IN ARRAY present LOOP
        EXECUTE 'ALTER TABLE ' || retired || ' NO FORCE ROW LEVEL SECURITY';
        EXECUTE 'SELECT EXISTS (SELECT 1 FROM ' || retired || ')' INTO has_rows;
        IF has_rows THEN
            populated := populated || retired;
        END IF;
    END LOOP;
    IF populated <> '{}' THEN
        RAISE EXCEPTION 'these tables are to be dropped and hold rows: %', array_to_string(populated, ', ')
            USING HINT = 'Move the rows elsewhere, then deploy again.';
    END IF;
    FOREACH retired IN ARRAY present LOOP
        EXECUTE 'DROP TABLE ' || retired;
    END LOOP;
END
$$;
