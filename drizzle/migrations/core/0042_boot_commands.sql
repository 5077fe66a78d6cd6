-- What the boot servers of a site were told of a machine is read from the log of commands, by machine. An index of these alone, so that no
-- other command pays for it.
create index node_commands_of_boots on node_commands (split_part(id, '/', 2))
  where id like 'machine/%' and kind in ('boot.prepareRamdisk', 'boot.cleanUp');
