-- What a tenant's instance may hold of a node, and since when it does. It counts as held when the node itself said so: the
-- signed statement and the certificate that it was judged by are kept with it (SIGN-014).
create table reservations (
  id text primary key,
  tenant_id text not null references tenants (id),
  node_id text not null references nodes (id),
  -- The instance that it is for.
  allocation_id text not null unique,
  state text not null default 'pending' check (state in ('pending', 'active', 'ended')),
  created_at timestamptz not null default now(),
  activated_at timestamptz,
  ended_at timestamptz,
  bound_body bytea,
  bound_signature bytea,
  bound_cert_issuer text,
  bound_cert_serial text,
  check ((bound_body is null) = (bound_signature is null) and (bound_body is null) = (bound_cert_issuer is null)
         and (bound_body is null) = (bound_cert_serial is null)),
  check (state <> 'pending' or (activated_at is null and bound_body is null)),
  check (state <> 'active' or activated_at is not null),
  check ((state = 'ended') = (ended_at is not null))
);
create index reservations_node on reservations (node_id) where state <> 'ended';
