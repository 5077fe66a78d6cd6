-- A hash chain: hash = SHA-256(prev_hash || canonical event). Appended under the counter's row lock.
create table audit_counter (
  id integer primary key check (id = 1),
  seq bigint not null,
  hash bytea not null
);
insert into audit_counter values (1, 0, '\x0000000000000000000000000000000000000000000000000000000000000000');

create table audit_events (
  seq bigint primary key,
  -- Idempotency: the same key appends once.
  key text not null unique,
  at timestamptz not null,
  actor text not null,
  action text not null,
  subject text not null,
  details jsonb not null default '{}',
  prev_hash bytea not null,
  hash bytea not null
);
create index audit_events_subject on audit_events (subject, seq);
