-- Secrets of this deployment (SEC-028), every version of each: sealed under a key that is derived from the deployment's secret and bound
-- to path and version. Whoever writes this table can take a secret away or put an older version's row in the place of a newer one's under
-- its own number; he can read none, and make none. A version without a value says that the secret was deleted; its number stays used.
create table secrets (
  path text not null check (length(path) between 1 and 256),
  version integer not null check (version > 0),
  sealed bytea check (length(sealed) <= 70000),
  created_by text not null,
  created_at timestamptz not null default now(),
  primary key (path, version)
);

-- Who may use a join token: an operator's machine (join-token), or the system that one run of the control plane installed (provisioned).
alter table join_tokens
  add column attestor text not null default 'join-token' check (attestor in ('join-token', 'provisioned')),
  add column run_id text,
  add constraint join_tokens_provisioned check (attestor <> 'provisioned' or (node_id is not null and role = 'node'));

-- Which boot entry a site agent serves, its own command says: what the broker of secrets looks up, in a log of many other commands.
create index node_commands_prepared_boots on node_commands (node_id, seq) where kind = 'boot.prepareRamdisk';
