-- Every process of the control plane says here which bundle it runs (H-02).
create table control_processes (
  id text primary key,
  kind text not null,
  host text not null default '',
  pid integer not null default 0,
  version text not null default '',
  bundle_digest text,
  bundle_generation bigint,
  trust_version_seen bigint,
  started_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now()
);

-- Recorded before the certificate signs anything: the drop of a root is computed from here (H-03).
create table worker_certs (
  serial text primary key,
  root_id text not null,
  process_id text not null,
  not_before timestamptz not null,
  not_after timestamptz not null,
  issued_at timestamptz not null default now()
);
create index worker_certs_root on worker_certs (root_id, not_after);

-- The newest bundle any process has run (H-07).
create table bundle_freshness (
  id integer primary key check (id = 1),
  generation bigint not null,
  digest text not null,
  recorded_at timestamptz not null default now()
);

-- The key bundle itself, for deployments that keep it here (BundleStore).
create table pki_bundle (
  id integer primary key check (id = 1),
  revision bigint not null,
  document text not null,
  updated_at timestamptz not null default now()
);
