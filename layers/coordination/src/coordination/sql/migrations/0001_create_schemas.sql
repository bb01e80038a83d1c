-- Schemas and the two functions every tenant transaction stands on.
-- The schema coordination is there already: the ledger of migrations lives in it. Runs as evalward_owner, which owns all schemas. evalward_app gets DML only, per table, where the table is made.
SET LOCAL lock_timeout = '5s';

CREATE SCHEMA IF NOT EXISTS scheduler;
CREATE SCHEMA IF NOT EXISTS scheduler_app;
CREATE SCHEMA IF NOT EXISTS packs;
CREATE SCHEMA evals;

GRANT USAGE ON SCHEMA coordination, scheduler, scheduler_app, packs, evals TO evalward_app;

-- Opens a tenant transaction: sets tenant and time-outs for this transaction only.
-- Raises when the isolation is not READ COMMITTED: caps counted under a lock need a fresh snapshot per statement,
-- and a role whose default is another isolation would over-admit.
-- Returns the tenant, so that a routine which is called with it comes after it in the same statement.
CREATE OR REPLACE FUNCTION scheduler_app.begin_tenant(tenant text, lock_timeout_ms integer, statement_timeout_ms integer)
    RETURNS text
    LANGUAGE plpgsql
    VOLATILE
AS $$
DECLARE
    applied text;  -- an assignment computes an expression, where PERFORM runs a statement: every transaction comes here
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'no tenant given' USING ERRCODE = 'EW001';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'isolation is %, READ COMMITTED is needed', current_setting('transaction_isolation')
            USING ERRCODE = 'EW002';
    END IF;
    applied := set_config('lock_timeout', lock_timeout_ms::text, true)
        || set_config('statement_timeout', statement_timeout_ms::text, true)
        -- A client that dies in the middle must not hold its locks for longer than a statement may run.
        || set_config('idle_in_transaction_session_timeout', (2 * statement_timeout_ms)::text, true);
    RETURN set_config('app.tenant_id', tenant, true);
END
$$;

-- What a policy comes to in a transaction that set no tenant: an error.
CREATE OR REPLACE FUNCTION scheduler_app.raise_no_tenant()
    RETURNS text
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'no tenant is set in this transaction' USING ERRCODE = 'EW001';
END
$$;

-- The tenant of this transaction. Row policies call it: a transaction that set no tenant fails instead of seeing
-- nothing. (After a transaction the setting reads '' rather than NULL: both are refused.) SQL, so that it becomes part of
-- the statement whose policy it serves: a call would cost as much as looking up the row.
CREATE OR REPLACE FUNCTION scheduler_app.require_current_tenant()
    RETURNS text
    LANGUAGE sql
    STABLE
AS $$
    SELECT coalesce(nullif(current_setting('app.tenant_id', true), ''), scheduler_app.raise_no_tenant())
$$;

-- Raises when a routine is called for another tenant than the one of this transaction.
CREATE OR REPLACE FUNCTION scheduler_app.raise_unless_tenant(tenant text)
    RETURNS void
    LANGUAGE plpgsql
    STABLE
AS $$
BEGIN
    IF tenant IS DISTINCT FROM scheduler_app.require_current_tenant() THEN
        RAISE EXCEPTION 'the tenant asked for is not the tenant of this transaction' USING ERRCODE = 'EW003';
    END IF;
END
$$;

REVOKE ALL ON FUNCTION scheduler_app.begin_tenant(text, integer, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.raise_no_tenant() FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.require_current_tenant() FROM PUBLIC;
REVOKE ALL ON FUNCTION scheduler_app.raise_unless_tenant(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler_app.begin_tenant(text, integer, integer) TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.raise_no_tenant() TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.require_current_tenant() TO evalward_app;
GRANT EXECUTE ON FUNCTION scheduler_app.raise_unless_tenant(text) TO evalward_app;
