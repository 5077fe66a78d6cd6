create table join_tokens (
  id text primary key,
  secret_sha256 bytea not null,
  site_id text not null references sites (id),
  role text not null check (role in ('node', 'site')),
  node_id text,
  created_by text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at timestamptz,
  used_by_node text,
  -- The same machine may ask again when the answer was lost: same token, same request, same node.
  used_csr_sha256 bytea
);

-- Shared by every api replica (RENEW-007): the digest of the signed statement, never of the signature.
create table renew_replays (
  statement_sha256 bytea primary key,
  expires_at timestamptz not null
);
