/** `better-compute stuck`: everything that waits, in one list; what cannot be asked is an entry of its own. */
import { Command } from 'commander';
import { isControlError } from '../../domain/errors.ts';
import type { StuckAnswer } from '../api-client.ts';
import { type CommonOptions, commonOptions, withExamples } from '../command.ts';
import { agoText } from '../format.ts';
import { type CliIo, writeJson } from '../io.ts';
import { createPorts, type Ports } from '../ports.ts';

export function newStuck(run: (options: CommonOptions) => Promise<void>): Command {
  const command = new Command('stuck')
    .description('Say what waits: since when, on whom, and which command helps')
    .action(() => run(commonOptions(command)));
  return withExamples(command, ['better-compute stuck', 'better-compute stuck --json']);
}

export async function stuckRun({ json }: CommonOptions, ports: Ports): Promise<void> {
  const items = await gather(ports);
  if (json) return writeJson(ports.io, { stuck: items });
  if (items.length === 0) return ports.io.out('nothing waits');
  ports.io.out(items.map((item) => describe(item, ports.io.now())).join('\n'));
}

/** The API knows everything; without it, Temporal is asked directly. */
async function gather(ports: Ports): Promise<StuckAnswer[]> {
  try {
    return await ports.api().listStuck();
  } catch (error) {
    if (!isControlError(error) || error.code !== 'UNAVAILABLE') throw error;
    return [silent('operator API', error.message), ...(await fromTemporal(ports))];
  }
}

async function fromTemporal(ports: Ports): Promise<StuckAnswer[]> {
  try {
    return await ports.stuckWorkflows();
  } catch (error) {
    if (!isControlError(error)) throw error;
    return [silent('temporal', error.message)];
  }
}

const silent = (subject: string, message: string): StuckAnswer => ({
  kind: 'source',
  subject,
  since: null,
  waitsFor: `no answer, so part of this list is missing: ${message}`,
  help: 'better-compute doctor',
});

const describe = (item: StuckAnswer, now: number): string =>
  [
    `${item.kind} ${item.subject}`,
    `  waits for  ${item.waitsFor}`,
    `  since      ${agoText(item.since, now)}`,
    `  helps      ${item.help}`,
  ].join('\n');

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  program.addCommand(newStuck((options) => stuckRun(options, ports)));
}
