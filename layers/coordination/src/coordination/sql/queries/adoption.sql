-- name: list_contract_tables
-- Tables of the contract's schemas, with their owner. schemas: names. By the owner. No lock.
SELECT n.nspname AS schema_name, c.relname AS table_name, c.relowner::regrole::text AS owner,
       c.relowner = current_user::regrole AS is_ours
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname = ANY(%(schemas)s::text[])
ORDER BY 1, 2;

-- name: has_ledger
-- Whether a ledger of migrations is there. By the owner. No lock.
SELECT to_regclass('coordination.schema_migrations') IS NOT NULL AS has_ledger;

-- name: has_schema
-- Whether a schema is there. By the owner. No lock.
SELECT to_regnamespace(%(name)s::text) IS NOT NULL AS has_schema;

-- name: list_lacking_columns
-- What tables in one set of schemas lack that those of the same name in another have, and what they have beside them that
-- a row of ours could not fill. suffix: of the schemas that are there already. By the owner. No lock.
WITH columns AS (
    SELECT n.nspname AS schema_name, c.relname AS table_name, a.attname AS name,
           format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_required,
           d.adbin IS NOT NULL OR a.attidentity <> '' OR a.attgenerated <> '' AS has_default
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attnum > 0 AND NOT a.attisdropped
), pairs AS (
    SELECT DISTINCT o.schema_name, o.table_name
    FROM columns o
    JOIN columns e ON e.schema_name = o.schema_name || %(suffix)s::text AND e.table_name = o.table_name
    WHERE o.schema_name IN ('scheduler', 'packs')
)
SELECT format('%%s.%%s lacks the column %%s %%s', p.schema_name, p.table_name, o.name, o.type) AS difference
FROM pairs p
JOIN columns o ON o.schema_name = p.schema_name AND o.table_name = p.table_name
WHERE NOT EXISTS (SELECT 1 FROM columns e
                  WHERE e.schema_name = p.schema_name || %(suffix)s::text AND e.table_name = p.table_name
                    AND e.name = o.name)
UNION ALL
SELECT format('%%s.%%s.%%s is %%s and must be %%s', p.schema_name, p.table_name, o.name, e.type, o.type)
FROM pairs p
JOIN columns o ON o.schema_name = p.schema_name AND o.table_name = p.table_name
JOIN columns e ON e.schema_name = p.schema_name || %(suffix)s::text AND e.table_name = p.table_name AND e.name = o.name
WHERE e.type <> o.type
UNION ALL
SELECT format('%%s.%%s.%%s is not ours and has no default', p.schema_name, p.table_name, e.name)
FROM pairs p
JOIN columns e ON e.schema_name = p.schema_name || %(suffix)s::text AND e.table_name = p.table_name
WHERE e.is_required AND NOT e.has_default
  AND NOT EXISTS (SELECT 1 FROM columns o
                  WHERE o.schema_name = p.schema_name AND o.table_name = p.table_name AND o.name = e.name)
ORDER BY 1;

-- name: list_other_results
-- Functions that are there already under a name and arguments of ours with another result. suffix: of the schemas that are
-- there already. By the owner. No lock.
SELECT format('scheduler_app.%%s(%%s) returns %%s and must return %%s', o.proname,
              pg_get_function_identity_arguments(o.oid), pg_get_function_result(e.oid), pg_get_function_result(o.oid))
       AS difference
FROM pg_catalog.pg_proc o
JOIN pg_catalog.pg_namespace n ON n.oid = o.pronamespace AND n.nspname = 'scheduler_app'
JOIN pg_catalog.pg_proc e ON e.proname = o.proname AND e.proargtypes = o.proargtypes
JOIN pg_catalog.pg_namespace m ON m.oid = e.pronamespace AND m.nspname = 'scheduler_app' || %(suffix)s::text
WHERE pg_get_function_result(e.oid) <> pg_get_function_result(o.oid)
ORDER BY 1;

-- name: list_completions
-- Statements that give adopted tables what ours have beside columns: defaults, NOT NULL, keys and checks, and foreign keys
-- to tables that are there too; and that take away policies, which would let rows through beside ours. suffix: of the
-- schemas that are there already. By the owner. No lock.
WITH tables AS (
    SELECT o.oid AS ours, e.oid AS existing, format('%%I.%%I', n.nspname, o.relname) AS name
    FROM pg_catalog.pg_class o
    JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace AND n.nspname IN ('scheduler', 'packs')
    JOIN pg_catalog.pg_namespace m ON m.nspname = n.nspname || %(suffix)s::text
    JOIN pg_catalog.pg_class e ON e.relnamespace = m.oid AND e.relname = o.relname
    WHERE o.relkind IN ('r', 'p') AND e.relkind IN ('r', 'p')
)
SELECT 1 AS place, t.name, format('DROP POLICY %%I ON %%s', p.polname, t.name) AS statement
FROM tables t JOIN pg_catalog.pg_policy p ON p.polrelid = t.existing
UNION ALL
SELECT 2, t.name, format('ALTER TABLE %%s ALTER COLUMN %%I SET DEFAULT %%s', t.name, a.attname,
                         pg_get_expr(d.adbin, d.adrelid))
FROM tables t
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.ours AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL
SELECT 3, t.name, format('ALTER TABLE %%s ALTER COLUMN %%I SET NOT NULL', t.name, a.attname)
FROM tables t
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.ours AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
UNION ALL
SELECT CASE k.contype WHEN 'f' THEN 5 ELSE 4 END, t.name,
       format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', t.name, k.conname, pg_get_constraintdef(k.oid))
FROM tables t
JOIN pg_catalog.pg_constraint k ON k.conrelid = t.ours AND k.contype IN ('p', 'u', 'c', 'f')
WHERE (k.contype <> 'f' OR EXISTS (SELECT 1 FROM tables r WHERE r.ours = k.confrelid)) AND NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_constraint x
    WHERE x.conrelid = t.existing AND (x.conname = k.conname OR (x.contype = 'p' AND k.contype = 'p')))
ORDER BY 1, 2, 3;
