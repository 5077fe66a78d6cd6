alter table node_sessions add column trust_version bigint;
create index node_sessions_gate on node_sessions (trust_version) include (node_id, last_seen_at) where ended_at is null;
