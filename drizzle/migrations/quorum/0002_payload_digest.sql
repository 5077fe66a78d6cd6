-- Empty in the scope: the leaf admits any payload of its kind for its subject (QUO-013).
alter table command_batch_scope add column payload_sha256 bytea not null default ''
  check (octet_length(payload_sha256) in (0, 32));
alter table command_batch_members add column payload_sha256 bytea not null default ''
  check (octet_length(payload_sha256) in (0, 32));
