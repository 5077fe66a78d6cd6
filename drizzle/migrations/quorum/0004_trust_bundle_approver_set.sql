alter table trust_bundle_state
  add column approver_set jsonb,
  add column approver_set_sha256 bytea,
  add column approver_set_epoch bigint not null default 0;
