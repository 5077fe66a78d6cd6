alter table node_sessions add column trust_version bigint;
-- Those that never reported come first: they are the ones a refusal names.
create index node_sessions_gate on node_sessions (trust_version nulls first, node_id) where ended_at is null;
