create table node_sessions (
  id uuid primary key,
  node_id text not null references nodes (id),
  gateway_id text not null,
  epoch bigint not null,
  role text not null,
  cert_issuer text not null,
  cert_serial text not null,
  peer text not null default '',
  boot_id text not null default '',
  started_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  ended_at timestamptz,
  end_reason text
) with (fillfactor = 70);
-- One open session a node: a newer one ends the older in the same transaction. No index holds last_seen_at (HOT).
create unique index node_sessions_live on node_sessions (node_id) where ended_at is null;
create index node_sessions_ended on node_sessions (ended_at) where ended_at is not null;
create index node_sessions_node on node_sessions (node_id, epoch);
create index node_sessions_gateway on node_sessions (gateway_id) where ended_at is null;
