/** What of the nodes' desired state is written, over PostgreSQL: logins and what is taken back, credentials. */
import type { Database } from '../../drizzle/client.ts';
import type { PkiBundle } from '../../pki/bundle/index.ts';
import { accessKeysOf, type NodeAccessOptions, writeAccess, writeAccessOfAll, writeAccessOfSome } from '../../services/node-access.ts';
import { setNodeCredential } from '../../services/node-credentials.ts';
import { announceSpecs } from '../../services/poke.ts';
import { revokeSshCertificate } from '../../services/ssh-certificates.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import type { CommandSigningPorts } from '../command-ports.ts';
import type { SpecSigningPorts } from '../spec-signing.ts';
import type { SshSigningPorts } from '../ssh-signing.ts';
import type { ExchangedKeysOptions } from './exchanged-keys.ts';

export interface AccessOptions {
  readonly db: Database;
  readonly worker: WorkerKeyProvider;
  readonly bundle: () => PkiBundle;
  /** Whose exec tickets nodes take; null: nobody's. */
  readonly ticketIssuer: string | null;
}

export function createAccess({
  db,
  worker,
  bundle,
  ticketIssuer,
}: AccessOptions): CommandSigningPorts['access'] &
  SshSigningPorts['ssh'] &
  SpecSigningPorts['credentials'] &
  Pick<ExchangedKeysOptions, 'specs'> {
  const options = (): NodeAccessOptions => {
    const current = bundle();
    const announce = (nodeIds: readonly string[]): Promise<void> => announceSpecs(db, nodeIds);
    return { db, worker, announce, trustDomain: current.trustDomain, keys: accessKeysOf(current, ticketIssuer) };
  };
  return {
    bringUpToDate: async (onProgress) => writeAccessOfAll(options(), { onProgress }),
    specs: async () => (await writeAccessOfSome(options())).left,
    set: async (input) => ({ generation: await setNodeCredential(options(), input) }),
    revoke: async ({ serial, actor, reason }) => {
      const { nodeId } = await revokeSshCertificate({ db, serial, actor, reason });
      return { nodeId, generation: await writeAccess(options(), nodeId) };
    },
  };
}
