-- Every record but accepted heartbeats (nine records in ten; they are counted per cycle and folded to five minutes).
create table raw.event_log (
    seq bigint,
    time_ms bigint,
    stored_ms bigint,
    principal varchar,     -- token of the subject
    type varchar,
    entity varchar,        -- workload, node, budget or pool it is about
    event_id varchar,
    version bigint,
    claimed_ms bigint,     -- the producer's at_ms
    refused boolean,       -- true: it changed nothing; the reason is in fact.rejection
    body_bytes bigint,
    body varchar           -- the envelope as published; a refused one is cut at 4,096 characters
);
