-- A batch is fixed when it is created: root, size and every leaf with its proof never change (BAT-004). What changes is its
-- state, and the approvals that are added. None of it is authority: the machine judges the signatures.
create table command_batches (
  id text primary key,
  tenant_id text not null references tenants (id),
  state text not null check (state in ('pending', 'approved', 'expired', 'cancelled')),
  scope_root bytea not null check (octet_length(scope_root) = 32),
  scope_size integer not null check (scope_size between 1 and 50000),
  -- Distinct approvers it needs, by the set that was published when it was created.
  required integer not null check (required >= 0),
  not_after timestamptz not null,
  trust_domain text not null,
  reason text not null,
  created_by text not null,
  created_at timestamptz not null default now(),
  -- How it is released (domain/batch/waves.ts); null: all at once.
  waves jsonb,
  -- Commands in it so far; the next one's member_index.
  members integer not null default 0,
  -- An encoded BatchApproval with every signature that is known, sorted by key; what goes out beside the commands.
  approval bytea,
  approved_at timestamptz,
  -- Nothing is left to do: cancelled, expired, or approved and past its end.
  closed_at timestamptz,
  closed_by text not null default '',
  close_reason text not null default ''
);
create index command_batches_open on command_batches (not_after) where closed_at is null;
create index command_batches_tenant on command_batches (tenant_id, created_at, id);

-- In the order of the tree: leaf_index is the place that the proof is for.
create table command_batch_scope (
  batch_id text not null references command_batches (id),
  leaf_index integer not null,
  leaf_hash bytea not null,
  subject text not null,
  kind text not null,
  -- An encoded BatchProof.
  proof bytea not null,
  primary key (batch_id, leaf_index)
);
create unique index command_batch_scope_leaf on command_batch_scope (batch_id, leaf_hash);

-- Commands that were put into the batch, in the order in which they came: releases go by member_index.
create table command_batch_members (
  batch_id text not null,
  member_index integer not null,
  command_id text not null unique,
  leaf_index integer not null,
  primary key (batch_id, member_index),
  foreign key (batch_id, leaf_index) references command_batch_scope (batch_id, leaf_index)
);

create table command_batch_approvals (
  batch_id text not null references command_batches (id),
  -- Lower-case hex of SHA-256 over the canonical key: one row a person, however the key was written (H-09).
  kid text not null,
  signature bytea not null check (octet_length(signature) = 64),
  approved_by text not null,
  created_at timestamptz not null default now(),
  primary key (batch_id, kid)
);
