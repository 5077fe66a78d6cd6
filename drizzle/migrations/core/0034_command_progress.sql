-- How far a running command is, as its node says: the last word alone, written a second or so behind it. Nothing is decided by
-- it; it goes with its command.
create table command_progress (
  command_id text primary key references node_commands (id) on delete cascade,
  done bigint not null check (done >= 0),
  -- 0: the node does not know how much there is.
  total bigint not null check (total >= 0),
  note text not null,
  epoch bigint not null,
  at timestamptz not null,
  -- Where the count began that `done` goes on with: what a rate is taken from. A count that falls begins anew.
  first_done bigint not null,
  first_at timestamptz not null
) with (fillfactor = 70);
