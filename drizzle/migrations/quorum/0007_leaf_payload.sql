-- What approvers read before they sign (QUO-021). Columns of the leaf that no delivery reads.
alter table command_batch_scope
  add column payload_type_url text,
  add column payload_value bytea check (octet_length(payload_value) <= 65536);
