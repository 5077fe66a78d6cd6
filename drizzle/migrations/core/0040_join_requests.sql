-- Joins that wait for an operator's word (JOIN-013): what asks, with evidence that holds, and what was decided. An id is the digest of the
-- request's key and of whom it would be, so that a word for one is no word for another.
create table join_requests (
  id text primary key,
  attestor text not null,
  role text not null,
  -- null: one that will be made.
  node_id text,
  site_id text not null,
  csr_sha256 bytea not null,
  -- What the machine says of itself: claims.
  hardware jsonb not null,
  first_asked_at timestamptz not null,
  last_asked_at timestamptz not null,
  state text not null check (state in ('waiting', 'approved', 'refused')),
  decided_at timestamptz,
  decided_by text not null default '',
  reason text not null default ''
);
create index join_requests_waiting on join_requests (first_asked_at) where state = 'waiting';
