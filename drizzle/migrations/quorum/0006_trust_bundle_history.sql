-- Every published digest with its version. A digest that was published again on purpose has two rows.
create table trust_bundle_history (
  version bigint primary key,
  digest text not null,
  reason text not null default '',
  published_at timestamptz not null default now(),
  published_by text not null
);
create index trust_bundle_history_digest on trust_bundle_history (digest, version);
