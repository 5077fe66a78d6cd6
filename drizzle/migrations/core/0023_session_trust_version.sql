alter table node_sessions add column trust_version bigint;

-- Who is there, and with what: one narrow row a node with an open session, so that the fleet gate reads a few megabytes for a
-- hundred thousand nodes whatever sessions have piled up. Written in the transactions that write node_sessions. No index
-- holds last_seen_at: the batched presence writes stay inside their page (HOT).
create table node_presence (
  node_id text primary key references nodes (id),
  session_id uuid not null unique,
  last_seen_at timestamptz not null,
  trust_version bigint
) with (fillfactor = 50);
-- Those that never reported come first: they are the ones a refusal names.
create index node_presence_gate on node_presence (trust_version nulls first, node_id);
