-- Who proposed it for the person in created_by, and by which delegation (BAT-053).
alter table command_batches
  add column created_by_agent text,
  add column delegation_id text;
