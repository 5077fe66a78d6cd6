-- Where an instance is, so that a tunnel can lead to it; and for one that is a sandbox, when that ends and whose memory it has.
alter table workload_instances
  -- Of its node's network, without a prefix.
  add column address text,
  add column sandbox_ends_at timestamptz,
  -- The instance its memory was captured on; its guest goes by that one's name.
  add column captured_on text,
  add constraint workload_instances_sandbox check (captured_on is null or sandbox_ends_at is not null);
