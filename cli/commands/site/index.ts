/** `better-compute site …`: where machines stand, and who speaks for them there. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newSiteList, newSiteShow, siteListRun, siteShowRun } from './sites.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'site', 'Where machines stand: the agents there, how many machines are in which state')
    .addCommand(newSiteList((options) => siteListRun(options, ports)))
    .addCommand(newSiteShow((options) => siteShowRun(options, ports)));
}
