create table sites (
  id text primary key,
  created_at timestamptz not null default now()
);

create table nodes (
  id text primary key,
  site_id text not null references sites (id),
  role text not null check (role in ('node', 'site', 'ramdisk', 'node-tenant')),
  state text not null default 'active' check (state in ('active', 'quarantined', 'revoked', 'retired')),
  identity_generation bigint not null default 1,
  hostname text not null default '',
  hardware jsonb not null default '{}',
  labels jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index nodes_state on nodes (state);

-- One row per certificate. The serial is reserved before it is signed (H-15): cert_der is null until then.
-- issuer: lower-case hex of SHA-256 over the SPKI of the authority that signs, which outlives the renewal of its certificate.
create table node_certs (
  issuer text not null,
  serial text not null,
  node_id text not null references nodes (id),
  site_id text not null,
  spiffe_id text not null,
  role text not null,
  generation bigint not null,
  uri_sans text[] not null default '{}',
  spki_sha256 bytea not null,
  cert_der bytea,
  not_before timestamptz not null,
  not_after timestamptz not null,
  reserved_at timestamptz not null default now(),
  issued_at timestamptz,
  revoked_at timestamptz,
  revoke_reason text,
  revocation_seq bigint,
  primary key (issuer, serial)
);
create index node_certs_node on node_certs (node_id, generation);
create index node_certs_end on node_certs (not_after);
create index node_certs_revoked on node_certs (revocation_seq) where revocation_seq is not null;

-- Revocations get their own commit-ordered number, so a slow transaction is never missed (H-16).
create table revocation_counter (
  id integer primary key check (id = 1),
  seq bigint not null
);
insert into revocation_counter values (1, 0);
