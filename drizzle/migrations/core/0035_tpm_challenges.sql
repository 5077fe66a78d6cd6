-- What attestor tpm asked a TPM, until it is answered or over. Shared by every api replica; the secret itself is kept nowhere.
create table tpm_challenges (
  id text primary key,
  ek_sha256 bytea not null check (octet_length(ek_sha256) = 32),
  ak_name bytea not null,
  -- The answer counts for this request alone.
  csr_sha256 bytea not null check (octet_length(csr_sha256) = 32),
  secret_sha256 bytea not null check (octet_length(secret_sha256) = 32),
  created_at timestamptz not null,
  expires_at timestamptz not null,
  used_at timestamptz,
  -- Of the node that it was used for: the same answer, sent again, is answered again while that identity lasts.
  used_generation bigint
);
create index tpm_challenges_end on tpm_challenges (expires_at);
