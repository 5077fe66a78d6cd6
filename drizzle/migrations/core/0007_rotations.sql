-- What operators decided about a rotation: force a gate, leave a node out, abort. Gates read it; audit records it.
create table rotation_overrides (
  rotation_id text not null,
  kind text not null check (kind in ('force', 'exclude', 'abort')),
  -- The phase a force opens, or the node an exclusion names; empty for an abort.
  subject text not null,
  actor text not null,
  reason text not null,
  at timestamptz not null default now(),
  primary key (rotation_id, kind, subject)
);

-- One row per stage (H-17); document is signed by the audit key.
create table rotation_evidence (
  rotation_id text not null,
  stage text not null,
  at timestamptz not null,
  document bytea not null,
  signature bytea not null,
  primary key (rotation_id, stage)
);
