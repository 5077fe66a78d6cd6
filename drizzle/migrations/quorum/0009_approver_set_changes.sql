-- Every approver set that was introduced properly: the first as it came, any later one signed by its predecessor and by its own
-- threshold (H-10). The bundle carries the last of them, so that a machine that was away can follow (A-PKI-15).
create table approver_set_changes (
  epoch bigint primary key,
  -- As in trust_bundle_state.approver_set.
  approver_set jsonb not null,
  approver_set_sha256 bytea not null,
  -- [{ kid, sig (base64url) }]
  signatures jsonb not null default '[]',
  -- The first trust version that carried it; null: not published yet.
  published_version bigint,
  created_at timestamptz not null default now(),
  created_by text not null default ''
);
