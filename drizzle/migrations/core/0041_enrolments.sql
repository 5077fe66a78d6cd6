-- Machines that are given an identity over SSH (XC-033 to XC-052): one row for each time, made by an operator at the api. Whom to dial, whose host
-- key must answer and which credential is used stand here alone, so that nobody who merely speaks to workflows can send it elsewhere.
create table enrolments (
  id text primary key,
  node_id text not null,
  site_id text not null,
  role text not null check (role in ('node', 'site')),
  tenant_id text not null,
  kind text not null check (kind in ('enrol', 'reenrol')),
  -- The identity's generation that serves meanwhile; null: the node is not known yet.
  base_generation bigint,
  address text not null,
  port integer not null check (port between 1 and 65535),
  login text not null,
  -- Whether the login takes root's place with sudo.
  become_root boolean not null,
  -- SHA256:<base64> of the host key, before which nothing is dialled.
  host_key text not null,
  -- A reference; the value is the hosts worker's alone.
  credential text not null,
  state text not null default 'open' check (state in ('open', 'minted', 'completed', 'failed', 'cancelled')),
  -- Of the request that may become the next identity, from the machine itself.
  csr_sha256 bytea,
  -- The machine completes by then, or never.
  deadline timestamptz,
  created_by text not null,
  reason text not null,
  created_at timestamptz not null,
  ended_at timestamptz,
  end_reason text not null default '',
  check ((state = 'open') = (csr_sha256 is null) or state in ('failed', 'cancelled')),
  check ((csr_sha256 is null) = (deadline is null))
);
create unique index enrolments_one_open on enrolments (node_id) where state in ('open', 'minted');
create index enrolments_of_node on enrolments (node_id, created_at desc);
