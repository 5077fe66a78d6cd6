-- What the deployment publishes. One row (version 0 until the first publication has committed); settled under its lock; gateways hand out exactly these signed bytes (H-02).
create table trust_bundle_state (
  id integer primary key check (id = 1),
  version bigint not null,
  digest text not null,
  roots text[] not null,
  body bytea not null,
  signature bytea not null,
  published_at timestamptz not null default now(),
  published_by text not null
);
