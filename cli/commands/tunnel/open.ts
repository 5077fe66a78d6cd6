import { createWriteStream } from 'node:fs';
import { Command, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { type TunnelOperationName, tunnelOperationNames } from '../../../domain/tunnels/operations.ts';
import type { TunnelRequest } from '../../api-client.ts';
import { actorOption, wholeNumber, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { carryTunnel } from '../../tunnels/carry.ts';

export interface TunnelOpenOptions {
  readonly node: string | null;
  readonly instance: string | null;
  readonly operation: TunnelOperationName | null;
  readonly port: number | null;
  readonly actor: string;
}

interface Flags {
  readonly node?: string;
  readonly instance?: string;
  readonly operation?: TunnelOperationName;
  readonly port?: number;
  readonly actor: string;
}

export function newTunnelOpen(ports: Ports, run: (options: TunnelOpenOptions) => Promise<void>): Command {
  const command = new Command('open')
    .description('Carry standard input and output to a machine or an instance; ssh uses it as its ProxyCommand')
    .option('--node <id>', 'to this machine: its sshd')
    .option('--instance <id>', 'to this instance, wherever it runs: its sshd, or --port')
    .addOption(new Option('--operation <name>', 'what the tunnel is for (default: what the other flags say)').choices(tunnelOperationNames))
    .addOption(new Option('--port <n>', 'TCP port of the instance').argParser(wholeNumber))
    .addOption(actorOption(ports.io))
    .action(({ node = null, instance = null, operation = null, port = null, actor }: NullableFlags) =>
      run({ node, instance, operation, port, actor }),
    );
  return withExamples(command, [
    `ssh -o ProxyCommand='better-compute tunnel open --node %h' root@node-17`,
    'better-compute tunnel open --instance i-0a1b --port 5432',
  ]);
}

type NullableFlags = { readonly [K in keyof Flags]: Flags[K] | null } & { readonly actor: string };

/** @throws INVALID_INPUT for flags that name no place, or two */
function requestOf({ node, instance, operation, port, actor }: TunnelOpenOptions): TunnelRequest {
  if ((node === null) === (instance === null))
    throw new ControlError('INVALID_INPUT', 'a tunnel leads to one place: name --node or --instance', { details: { reason: 'flags' } });
  if (node !== null) return { operation: operation ?? 'node.ssh', nodeId: node, actor, ...(port === null ? {} : { port }) };
  return {
    operation: operation ?? (port === null ? 'instance.ssh' : 'instance.tcp'),
    instanceId: instance as string,
    actor,
    ...(port === null ? {} : { port }),
  };
}

/** EXEC-005, TUN-001: the ticket is asked for anew for as long as the tunnel lasts. */
export async function tunnelOpenRun(options: TunnelOpenOptions, { io, api }: Ports): Promise<void> {
  const request = requestOf(options);
  const { ticket, gateway } = await api().openTunnel(request);
  await carryTunnel({
    offer: {
      ticket,
      gateway: { gatewayUrl: gateway.url, gatewayServerName: gateway.name, servingCaPin: gateway.servingCaPin },
    },
    input: process.stdin,
    // Closed when the machine has said all: ssh waits for that.
    output: createWriteStream('', { fd: 1 }),
    renew: async () => (await api().openTunnel(request)).ticket,
    now: io.now,
    say: (line) => io.err(line),
  });
}
