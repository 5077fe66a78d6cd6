-- The same request again is the same batch (BAT-045 to BAT-047): the id is made of tenant, caller and key, the digest tells another request.
alter table command_batches
  add column idempotency_key text not null default '',
  add column request_digest bytea not null default '';
