-- Whose trail an event belongs to. 'deployment' is the operators' own, and that of every event written before there were others.
alter table audit_events add column tenant_id text not null default 'deployment';
create index audit_events_tenant on audit_events (tenant_id, seq);

-- One signed checkpoint after another for each tenant; document is canonical JSON under the audit key, and names the one before.
create table audit_checkpoints (
  tenant_id text not null,
  number bigint not null,
  at timestamptz not null,
  -- The last event it covers.
  through_seq bigint not null,
  document bytea not null,
  signature bytea not null,
  primary key (tenant_id, number)
);
