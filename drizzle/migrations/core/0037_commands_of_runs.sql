-- The commands of a run on a machine are found by what their ids begin with. An index of these alone, so that no other command pays for
-- it; by bytes, whatever the database's collation is.
create index node_commands_of_runs on node_commands (id text_pattern_ops) where id like 'machine/%';
