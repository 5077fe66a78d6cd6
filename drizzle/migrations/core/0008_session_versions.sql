alter table node_sessions
  add column daemon_version text not null default '',
  add column proto_max integer not null default 1,
  add column capabilities text[] not null default '{}';
