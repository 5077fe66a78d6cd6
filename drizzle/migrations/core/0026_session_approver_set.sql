alter table node_sessions
  add column approver_set_epoch bigint,
  add column approver_set_sha256 bytea;
