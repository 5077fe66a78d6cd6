-- A machine is hardware that is known by its management controller and by facts about it; its id is the id of its node, which is made
-- with it, so that batches, tenants and command logs have their subject before anything ever joined.
-- generation counts changes of state: every one is a single conditional update on (state, generation) (H-20).
create table machines (
  id text primary key references nodes (id),
  site_id text not null references sites (id),
  rack text not null default '',
  state text not null check (state in ('registered', 'inspecting', 'available', 'provisioning', 'provisioned', 'retiring', 'retired',
                                       'quarantined', 'deleted')),
  state_since timestamptz not null default now(),
  -- Why it is in that state: of a quarantine, of an override.
  state_reason text not null default '',
  generation bigint not null default 1,
  manufacturer text not null default '',
  model text not null default '',
  memory_bytes bigint not null default 0,
  processors integer not null default 0,
  -- What is on it: the profile of the last run that was provisioned.
  profile_name text not null default '',
  power text not null default 'unknown' check (power in ('on', 'off', 'changing', 'unknown')),
  power_at timestamptz,
  inspected_at timestamptz,
  created_at timestamptz not null default now(),
  created_by text not null,
  updated_at timestamptz not null default now()
);
create index machines_site on machines (site_id, state, id);
create index machines_state on machines (state, id);

-- Who a machine is: a set of (source, value), normalised (domain/metal/identity.ts). origin: who said so.
create table machine_identities (
  machine_id text not null references machines (id),
  source text not null,
  value text not null,
  origin text not null check (origin in ('inventory', 'controller', 'ramdisk')),
  first_seen_at timestamptz not null,
  last_seen_at timestamptz not null,
  primary key (machine_id, source, value)
);
create index machine_identities_value on machine_identities (value, source);

-- Its management controller. pin_sha256: of the controller's key, null until first contact.
create table machine_bmcs (
  machine_id text primary key references machines (id),
  site_id text not null references sites (id),
  address text not null,
  system_id text not null default '',
  credential_ref text not null,
  pin_sha256 text check (pin_sha256 ~ '^[0-9a-f]{64}$'),
  profile jsonb not null default '{}',
  updated_at timestamptz not null default now()
);
-- One controller may serve several systems, each of which is one machine.
create unique index machine_bmcs_address on machine_bmcs (site_id, address, system_id);

-- What was seen of its disks, by whom. disk_key: WWN, else serial, else what the observer calls it.
create table machine_disks (
  machine_id text not null references machines (id),
  disk_key text not null,
  name text not null default '',
  serial text not null default '',
  wwn text not null default '',
  model text not null default '',
  size_bytes bigint not null default 0,
  transport text not null default '',
  rotational boolean,
  origin text not null check (origin in ('controller', 'ramdisk')),
  seen_at timestamptz not null,
  primary key (machine_id, disk_key)
);

-- A run is one provision, retirement, inspection or rotation of one machine. machine_state: before it began.
create table metal_runs (
  id text primary key check (id ~ '^[0-9a-f]{12}$'),
  machine_id text not null references machines (id),
  kind text not null check (kind in ('provision', 'retire', 'inspect', 'rotate-bmc')),
  workflow_id text not null,
  workflow_run_id text not null unique,
  state text not null default 'open' check (state in ('open', 'done', 'failed', 'cancelled')),
  remains text check (remains in ('untouched', 'clean', 'dirty')),
  end_reason text not null default '',
  machine_state text not null,
  actor text not null,
  reason text not null default '',
  profile jsonb,
  plan jsonb not null,
  batch_id text,
  started_at timestamptz not null,
  ended_at timestamptz,
  ended_by text not null default '',
  check ((state = 'open') = (ended_at is null)),
  check (state in ('open', 'done') or remains is not null)
);
-- No machine is in two runs (M33).
create unique index metal_runs_open on metal_runs (machine_id) where state = 'open';
create index metal_runs_machine on metal_runs (machine_id, started_at desc);

create table metal_run_steps (
  run_id text not null references metal_runs (id),
  step text not null,
  attempt integer not null check (attempt > 0),
  state text not null check (state in ('started', 'done', 'failed', 'skipped')),
  detail text not null default '',
  actor text not null,
  started_at timestamptz not null,
  ended_at timestamptz,
  primary key (run_id, step, attempt)
);

-- Lets one boot of one run into the ramdisk, once. The token itself is a secret; here is its digest.
create table boot_entries (
  id text primary key,
  run_id text not null references metal_runs (id),
  node_id text not null references machines (id),
  attempt integer not null check (attempt > 0),
  token_sha256 bytea not null check (octet_length(token_sha256) = 32),
  boot_nonce bytea not null check (octet_length(boot_nonce) = 16),
  created_at timestamptz not null,
  expires_at timestamptz not null,
  used_at timestamptz,
  used_csr_sha256 bytea,
  -- The run ended, or the machine was quarantined: nobody joins with it any more.
  closed_at timestamptz,
  unique (run_id, attempt)
);
create index boot_entries_node on boot_entries (node_id, created_at desc);

-- What ramdisks signed about disks they erased or wrote. body and signature verify without this database.
create table metal_evidence (
  id text primary key,
  run_id text not null references metal_runs (id),
  node_id text not null references machines (id),
  command_id text not null,
  kind text not null check (kind in ('erase', 'deploy')),
  body bytea not null,
  signature bytea not null,
  body_sha256 bytea not null,
  signer_serial text not null,
  -- It says that everything that was asked for was done.
  complete boolean not null,
  finished_at timestamptz not null,
  recorded_at timestamptz not null,
  unique (command_id, kind)
);
create index metal_evidence_run on metal_evidence (run_id, finished_at);
create index metal_evidence_node on metal_evidence (node_id, finished_at);

-- A machine that was deleted with somebody's data on its disks does not come back under another name until someone says that it may.
create table machine_tombstones (
  machine_id text not null references machines (id),
  source text not null,
  value text not null,
  reason text not null,
  created_at timestamptz not null,
  created_by text not null,
  lifted_at timestamptz,
  lifted_by text,
  lift_reason text,
  primary key (machine_id, source, value),
  check ((lifted_at is null) = (lifted_by is null) and (lifted_at is null) = (lift_reason is null))
);
create index machine_tombstones_value on machine_tombstones (value, source) where lifted_at is null;
