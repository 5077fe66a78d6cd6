-- What a machine says has become of its desired state: the generation it holds, and the sections that are not applied, with why. Of a session,
-- since another one may run another daemon; only a session that is open writes it.
alter table node_sessions
  add column spec_generation bigint,
  add column section_faults jsonb;
-- Few machines have one that failed: those are looked for.
create index node_sessions_failed_sections on node_sessions (node_id)
  where ended_at is null and section_faults @> '[{"state":"failed"}]';
