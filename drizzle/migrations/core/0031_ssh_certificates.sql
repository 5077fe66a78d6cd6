-- Every break-glass certificate that was issued (SSH-005): who asked, for which account of which node, until when; and that it was
-- taken back (SSH-006), which its node hears of in its next desired state. The row is written before the certificate leaves.
create table ssh_certificates (
  serial bigint primary key check (serial > 0),
  node_id text not null references nodes (id),
  account text not null,
  principal text not null,
  key_id text not null,
  public_key text not null,
  issued_to text not null,
  issued_at timestamptz not null default now(),
  valid_before timestamptz not null,
  revoked_at timestamptz,
  revoked_by text,
  revoke_reason text,
  -- The desired state of the node that lists it first.
  listed_generation bigint,
  check ((revoked_at is null) = (revoked_by is null) and (revoked_at is null) = (revoke_reason is null))
);
create index ssh_certificates_node on ssh_certificates (node_id, issued_at);
create index ssh_certificates_revoked on ssh_certificates (node_id, valid_before) where revoked_at is not null;
create index ssh_certificates_unlisted on ssh_certificates (node_id) where revoked_at is not null and listed_generation is null;
