-- The keys of the workload issuer (WID-003): one ring an issuer, sealed under the deployment's secret and bound to issuer and
-- revision. Nothing of it is in the clear: whoever writes this table can put an older ring back, and cannot add a key of his own.
create table workload_issuers (
  issuer text primary key,
  revision bigint not null check (revision > 0),
  sealed_keys bytea not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

-- Which instance runs on which node, for whom (WID-041): what the broker asks before a node gets a token for it. The last two
-- columns count its tokens within a minute, for all replicas of the api together.
create table workload_instances (
  id text primary key,
  tenant_id text not null,
  node_id text not null references nodes (id),
  started_at timestamptz not null default now(),
  ended_at timestamptz,
  window_start timestamptz not null default '-infinity',
  window_tokens integer not null default 0
);
create index workload_instances_node on workload_instances (node_id) where ended_at is null;
