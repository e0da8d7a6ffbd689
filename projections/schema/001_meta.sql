-- What this file is, and how far it got.
create schema meta;
create schema raw;
create schema dim;
create schema fact;
create schema mart;

-- One row. Another fingerprint (of the SQL and the code that fills the tables, and of DuckDB) means: rebuild.
create table meta.projection (
    fingerprint varchar,
    duckdb_version varchar
);

-- One row per commit; the position is the last of them. Its rows depend on how the input was cut into commits, so this
-- table is the only one outside the logical digest.
create table meta.commit_log (
    first_seq bigint,      -- in EVENTS
    last_seq bigint,       -- always a tick
    decision_seq bigint,   -- in DECISIONS
    time_ms bigint,        -- of the last record
    records bigint,
    cycles bigint,
    chain varchar,         -- over all records read, as in the core's batches
    tip varchar,           -- hash of the record at last_seq: the log must still show it
    stated boolean,        -- times are the producers' claims
    carry blob             -- changes to the open rows that are not in the *_open tables yet
);

-- The *_open tables are complete up to the last seq here; later changes are in meta.commit_log.carry.
create table meta.refresh (
    last_seq bigint
);
