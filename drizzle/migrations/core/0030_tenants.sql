-- Whose machines they are. A batch, a machine and a join token belong to one tenant; 'default' is where everything belongs that names none.
create table tenants (
  id text primary key,
  created_at timestamptz not null default now(),
  deleted_at timestamptz
);
insert into tenants (id) values ('default');

alter table nodes add column tenant_id text not null default 'default' references tenants (id);
create index nodes_tenant on nodes (tenant_id, id);
alter table join_tokens add column tenant_id text not null default 'default' references tenants (id);
