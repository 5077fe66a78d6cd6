-- The certificate a gateway presents to daemons: who exchanges it waits until every gateway presents the next one.
alter table control_processes add column serving_serial text;
