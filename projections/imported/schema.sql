-- What did other schedulers run, for whom, when, and on how much?
create schema meta;
create schema dim;
create schema fact;
create schema mart;

create table meta.imported (schema_version integer not null);

-- One row per file that was imported. until_ms: the moment it was written, until when what had no end yet is counted.
create table dim.imported_file (
    file integer not null, name varchar not null, kind varchar not null, zone varchar not null, until_ms bigint,
    lines bigint not null, attempts bigint not null, refused bigint not null, passed bigint not null, notes varchar not null,
    imported_ms bigint not null
);

-- One row per line that could not be read, with the reason.
create table fact.imported_refusal (file integer not null, line bigint not null, reason varchar not null);

-- One row per attempt: cluster + job + submit_ms + start_ms is the key. No start: it never ran. file and line: where it stands.
create table fact.imported_job (
    cluster varchar not null, job varchar not null, submit_ms bigint not null, start_ms bigint, end_ms bigint, eligible_ms bigint,
    elapsed_ms bigint, label varchar not null, name varchar not null, "user" varchar not null, account varchar not null,
    "group" varchar not null, qos varchar not null, queue varchar not null, state varchar not null, exit varchar not null,
    nodes bigint not null, cpus bigint not null, gpus_milli bigint not null, gpu_type varchar not null, node_list varchar not null,
    zone varchar not null, until_ms bigint, file integer not null, line bigint not null
);

-- The calendar days of each zone, as instants: a day of a summer-time change has 23 or 25 hours.
create table dim.imported_day (zone varchar not null, day date not null, from_ms bigint not null, until_ms bigint not null);

-- The organisation: up to three units above each group or account, widest first.
create table dim.imported_unit (member varchar not null, unit1 varchar not null, unit2 varchar not null, unit3 varchar not null);

-- Attempts with what they are: ran; open (no end yet); ghost (no end, but its number was used again later: it is not running);
-- never ran (ended before it started); waiting; superseded (waiting here, and seen started or gone elsewhere).
-- Only ran counts in full, open counts until its file was written, nothing else counts.
create view mart.imported_attempt as
with beside as (
    select *,
        max(coalesce(start_ms, submit_ms)) over (partition by cluster, job) as last_ms,
        count(*) filter (where start_ms is not null or end_ms is not null) over (partition by cluster, job, submit_ms) as answered
    from fact.imported_job
), told as (
    select * exclude (last_ms, answered),
        case
            when start_ms is not null and end_ms is not null then 'ran'
            when start_ms is not null and last_ms > start_ms then 'ghost'
            when start_ms is not null then 'open'
            when end_ms is not null then 'never ran'
            when answered > 0 or last_ms > submit_ms then 'superseded'
            else 'waiting'
        end as kind
    from beside
)
select told.*, coalesce(u.unit1, '') as unit1, coalesce(u.unit2, '') as unit2, coalesce(u.unit3, '') as unit3,
    case kind when 'ran' then end_ms when 'open' then greatest(start_ms, coalesce(until_ms, start_ms)) else start_ms end
        as counted_end_ms,
    (counted_end_ms - start_ms)::hugeint as wall_ms,
    gpus_milli::hugeint * (counted_end_ms - start_ms) as gpu_us,
    cpus::hugeint * (counted_end_ms - start_ms) as cpu_ms,
    nodes::hugeint * (counted_end_ms - start_ms) as node_ms,
    case when kind in ('ran', 'open') then start_ms - submit_ms end as wait_ms
from told left join dim.imported_unit as u on u.member = coalesce(nullif(told."group", ''), told.account);

-- Attempts that ran, split at midnights of their zone and cut to asked_ms .. before_ms; began: the part that holds the start.
create macro mart.imported_usage(asked_ms, before_ms) as table
with cut as (
    select a.*, d.day, greatest(a.start_ms, d.from_ms, asked_ms) as part_from_ms,
        least(a.counted_end_ms, d.until_ms, before_ms) as part_until_ms, d.from_ms as day_from_ms, d.until_ms as day_until_ms
    from mart.imported_attempt as a
    join dim.imported_day as d
        on d.zone = a.zone and d.from_ms < greatest(a.counted_end_ms, a.start_ms + 1) and d.until_ms > a.start_ms
    where a.kind in ('ran', 'open')
)
select * exclude (gpu_us, cpu_ms, node_ms, wall_ms, wait_ms, day_from_ms, day_until_ms),
    start_ms between part_from_ms and part_until_ms and start_ms >= day_from_ms as began,
    counted_end_ms = part_until_ms and kind = 'ran' as over,
    (part_until_ms - part_from_ms)::hugeint as wall_ms,
    gpus_milli::hugeint * (part_until_ms - part_from_ms) as gpu_us,
    cpus::hugeint * (part_until_ms - part_from_ms) as cpu_ms,
    nodes::hugeint * (part_until_ms - part_from_ms) as node_ms,
    case when began then start_ms - submit_ms else 0 end as wait_ms
from cut
where part_until_ms > part_from_ms or (start_ms = counted_end_ms and start_ms >= asked_ms and start_ms < before_ms);
