alter table nodes
  add column spec jsonb not null default '{}',
  add column generation bigint not null default 0,
  add column spec_body bytea,
  add column spec_signature bytea,
  add column spec_signer_root text,
  add column spec_signer_not_after timestamptz;
