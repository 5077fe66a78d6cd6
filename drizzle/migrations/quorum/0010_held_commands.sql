-- A held command has not_before 'infinity' and stays out of every read that looks for work.
create index node_commands_due on node_commands (not_before) where state = 0 and seq < 0 and not_before < 'infinity';
create index node_commands_batch on node_commands (batch_id) where batch_id is not null and state < 2;
