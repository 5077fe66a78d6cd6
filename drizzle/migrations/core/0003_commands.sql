-- The per-node command log. One row per node raises next_seq, so sequence order is commit order per node and readers
-- never see a gap; epoch fences every gateway but the one that owns the session.
create table node_queue (
  node_id text primary key references nodes (id),
  next_seq bigint not null default 0,
  epoch bigint not null default 0,
  -- The identity generation its commands must be signed for; null: it takes none. Here and not only in nodes, because a
  -- statement that waited for this row's lock sees its newest version, and of every other table the old one.
  generation bigint default 1,
  owner_gateway text,
  owner_since timestamptz,
  acked_seq bigint not null default 0
) with (fillfactor = 70);

-- seq is positive in the log. A command that must not be delivered yet has a negative one and gets its place when it is due.
-- signature: an encoded bettercompute.common.v1.Signature.
-- state: 0 open, 1 acked, 2 done, 3 failed, 4 expired, 5 cancelled, 6 rejected, 7 interrupted (domain/commands/states.ts)
create table node_commands (
  node_id text not null references nodes (id),
  seq bigint not null,
  id text not null unique,
  kind text not null,
  lane text not null,
  body bytea not null,
  body_sha256 bytea not null,
  signature bytea not null,
  signer_root text not null,
  signer_not_after timestamptz not null,
  batch_id text,
  requested_by text not null default '',
  not_before timestamptz not null default '-infinity',
  deadline timestamptz not null,
  state smallint not null default 0,
  reject_reason text,
  created_at timestamptz not null default now(),
  acked_at timestamptz,
  finished_at timestamptz,
  primary key (node_id, seq)
) with (fillfactor = 85);
create index node_commands_open on node_commands (node_id, seq) where state < 2;
create index node_commands_deadline on node_commands (deadline) where state < 2;
create index node_commands_finished on node_commands (finished_at) where state >= 2;

-- Insert-only: the first result wins.
create table node_results (
  command_id text primary key references node_commands (id),
  node_id text not null,
  outcome smallint not null,
  payload bytea,
  error_code text not null default '',
  error_message text not null default '',
  started_at timestamptz,
  finished_at timestamptz,
  epoch bigint not null,
  received_at timestamptz not null default now()
);

-- Which activity waits for a command; read in the transaction that stores the result.
create table command_waits (
  command_id text primary key references node_commands (id),
  workflow_id text not null,
  run_id text not null,
  activity_id text not null,
  registered_at timestamptz not null default now()
);

create table completion_outbox (
  command_id text primary key,
  workflow_id text not null,
  run_id text not null,
  activity_id text not null,
  attempts integer not null default 0,
  next_at timestamptz not null default now(),
  created_at timestamptz not null default now()
);
create index completion_outbox_due on completion_outbox (next_at);
