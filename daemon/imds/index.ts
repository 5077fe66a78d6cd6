/**
 * The metadata service of a host (WID-027, WID-040): a program inside an instance asks it for the token by which the instance proves who
 * it is. It stands above the rounds of the daemon: while the daemon is parked or starts anew, it says that nothing can be had now.
 *
 * Invariants: an instance gets its own token and no other's, by the address that its connection comes from · nothing is handed out
 * without a session token, through a proxy, or to a host by name · tokens are neither kept nor logged · one instance has one
 * question under way and cannot keep the others out.
 *
 * Threat model: everything inside an instance may send anything to this address, and so may whatever a server in there can be made to fetch.
 * That an address belongs to an instance is the host network's to hold: a guest that can send and receive under a neighbour's
 * address is that neighbour here (docs/threat-model.md). Which tenant an instance is of, and whether it runs on this node at all,
 * the control plane decides by its own record, whatever this host says.
 *
 * What it does not do: TLS (nobody inside an instance could check it), keep tokens, set how many hops its answers may travel (Node has no
 * way to; the host's route to its instances does: docs/runbooks/tokens-for-instances.md).
 */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { listenOn, showAddress } from '../../runtime/ports.ts';
import { type ReporterPorts, startBindingReporter } from '../events/binding-reporter.ts';
import { type ListenAddress, parseListenAddress } from './address.ts';
import { openFakeHardware } from './fakehw.ts';
import { createMetadataHttp, type MetadataPorts } from './http.ts';
import { createInstanceTurns } from './instance-turns.ts';
import { createSessionTokens } from './session-tokens.ts';

export interface MetadataSettings {
  readonly listen: ListenAddress;
  readonly fakehwInstances: string;
}

export interface MetadataService {
  readonly addresses: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

/**
 * What the owner asked for, whole or not at all.
 *
 * @param listen of the flag, else of the configuration
 * @param role undefined: not joined yet, which the daemon itself says
 * @returns null when nothing of it is set
 * @throws INVALID_CONFIG
 */
export function metadataSettings({
  listen,
  fakehwInstances,
  role,
}: {
  readonly listen: string | undefined;
  readonly fakehwInstances: string | undefined;
  readonly role: string | undefined;
}): MetadataSettings | null {
  const invalid = (message: string): ControlError => new ControlError('INVALID_CONFIG', message, { details: { reason: 'imds' } });
  if (listen === undefined && fakehwInstances === undefined) return null;
  const at = listen === undefined ? null : parseListenAddress(listen);
  if (at === null)
    throw invalid(
      'instances are declared, and nothing serves them: name an address with --imds-listen, or imds.listen in the configuration',
    );
  if (fakehwInstances === undefined)
    throw invalid('imds.listen is set, and this bcd has no runtime of instances to serve: declare some with --fakehw-instances');
  if (role !== undefined && role !== 'node')
    throw invalid(`this machine joined as ${role}: only a node runs instances, and the broker gives tokens to no other`);
  return { listen: at, fakehwInstances };
}

/** @throws PORT_TAKEN; NOT_FOUND, INVALID_CONFIG for the file of instances */
export async function openMetadataService(
  { listen, fakehwInstances }: MetadataSettings,
  { ask, report, log }: Pick<MetadataPorts, 'ask' | 'log'> & Pick<ReporterPorts, 'report'>,
): Promise<MetadataService> {
  const runtime = await openFakeHardware(fakehwInstances);
  log.warn(
    { file: fakehwInstances },
    'instances are those that this file declares, not real hardware: fakehw is for tests and development',
  );
  const steadyMs = (): number => performance.now();
  const sessions = createSessionTokens({ key: randomBytes(32), steadyMs });
  const server = createMetadataHttp({ runtime, sessions, turns: createInstanceTurns({ steadyMs }), ask, log });
  const at = await listenOn(server, { ...listen, who: 'the metadata service', setBy: 'imds.listen or --imds-listen' });
  log.info({ address: showAddress(at) }, 'the metadata service listens');
  const reporter = startBindingReporter({ runtime, report, log });
  return {
    addresses: { imds: showAddress(at) },
    async close() {
      await reporter.stop();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}
