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

-- One row per commit; the position is the last of them. Its rows depend on how the input was cut into commits, so meta is the
-- only schema outside the logical digest.
create table meta.commit_log (
    first_seq bigint,      -- in EVENTS
    last_seq bigint,       -- always a tick
    decision_seq bigint,   -- in DECISIONS
    time_ms bigint,        -- of the last record
    records bigint,
    cycles bigint,
    chain varchar,         -- over all records read, as in the core's batches
    tip varchar,           -- hash of the record at last_seq: the log must still show it
    stated boolean         -- times are the producers' claims
);

-- All tables of the other schemas stand at this seq, a tick.
create table meta.refresh (
    last_seq bigint
);

-- One row per commit after that: what it adds to the tables.
create table meta.journal (
    last_seq bigint,
    changes blob
);
