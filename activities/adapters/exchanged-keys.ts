/**
 * Each kind of exchanged key behind the one port: what is in the bundle through its compare-and-swap, the workload keys through
 * the row of their ring, a gateway's certificate through its folder. Which step a key allows is decided where it lives; here are
 * only the guards that make a step one that can be repeated: it names the keys it means.
 */
import { ControlError } from '../../domain/errors.ts';
import { retirementOpensAt } from '../../domain/rotation/ca-renewal.ts';
import { judgeGateways, judgeProcesses, processLiveWithinMs, type RotationTimes } from '../../domain/rotation/gates.ts';
import type { ExchangedKey, KeyStanding, RenewedCa } from '../../domain/rotation/key-exchanges.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import * as bundles from '../../pki/bundle/index.ts';
import { jwkThumbprint } from '../../pki/jose/index.ts';
import { listProcesses, type ProcessRow } from '../../services/processes.ts';
import * as workload from '../../services/workload-keys.ts';
import type { ExchangedKeyPort, KeyView } from '../key-rotation-ports.ts';
import type { BundleSteps } from './bundle-steps.ts';
import { authorityFiles, createGatewayCertificate, type GatewayCertificateFolder } from './gateway-certificate.ts';

export interface ExchangedKeysOptions {
  readonly db: Database;
  readonly steps: BundleSteps;
  readonly clock: () => Promise<number>;
  readonly times: RotationTimes;
  /** null: this deployment issues no workload tokens. */
  readonly workload: workload.WorkloadSettings | null;
  readonly folder: GatewayCertificateFolder;
  /** Signs desired state that does not name the ticket keys of the bundle, some at a time; answers of how many nodes that is so. */
  readonly specs: () => Promise<number>;
}

export function createExchangedKeys(options: ExchangedKeysOptions): (key: ExchangedKey, subject: RenewedCa | '') => ExchangedKeyPort {
  const table: Readonly<Record<ExchangedKey, (subject: RenewedCa | '') => ExchangedKeyPort>> = {
    ca: (subject) => createCa(options, subject === '' ? 'node' : subject),
    gateway: () => createGatewayCertificate({ ...options, processes: (view) => countGateways(options, view) }),
    ticket: () => createTicketKey(options),
    workload: () => createWorkloadKey(options),
  };
  return (key, subject) => table[key](subject);
}

const viewOf = (bundle: bundles.PkiBundle, keys: readonly KeyStanding[]): KeyView => ({
  trustDomain: bundle.trustDomain,
  bundle: { digest: bundles.bundleDigest(bundle), generation: bundle.generation },
  keys,
});

const hasKey = (keys: readonly KeyStanding[], id: string, state: KeyStanding['state']): boolean =>
  keys.some((key) => key.id === id && key.state === state);
const unchanged = (bundle: bundles.PkiBundle): bundles.BundleStep => ({ bundle, changed: false });

const caOf: Readonly<Record<RenewedCa, bundles.RenewableCa>> = Object.freeze({
  node: 'nodeCa',
  serving: 'servingCa',
  internal: 'internalCa',
});

/** The present certificate "signs"; earlier ones are former, each with the instant at which nobody needs it any more. */
function createCa(options: ExchangedKeysOptions, subject: RenewedCa): ExchangedKeyPort {
  const { steps, times, folder } = options;
  const ca = caOf[subject];
  const keysOf = (bundle: bundles.PkiBundle): KeyStanding[] =>
    bundle[ca].certificates.map(({ serial }, at) =>
      at === 0 ? { id: serial, state: 'signing', opensAt: null } : { id: serial, state: 'former', opensAt: opensAt(bundle, serial) },
    );
  const opensAt = (bundle: bundles.PkiBundle, serial: string): number =>
    retirementOpensAt(bundles.caRetirementFacts(bundle[ca].certificates, { ca, serial, lastLeafNotAfter: null }), times);
  const show = (bundle: bundles.PkiBundle): KeyView => viewOf(bundle, keysOf(bundle));
  /** Also when the bundle was changed before: a step that was cut off behind it makes up for the files. */
  const written = async (bundle: bundles.PkiBundle): Promise<KeyView> => {
    await folder.writeAuthorities(authorityFiles(bundle));
    return show(bundle);
  };
  return {
    read: async () => show(await steps.read()),
    add: async ({ from, refuse }) =>
      written(
        await steps.take(async (bundle, now) => {
          if (from === null || bundle[ca].certificate.serial !== from) return unchanged(bundle);
          await refuse();
          return bundles.renewCa(bundle, { ca, serial: from, now }).catch(sayByHand(subject));
        }),
      ),
    promote: async () => show(await steps.read()),
    retire: async ({ from }) =>
      written(
        await steps.take((bundle, now) =>
          hasKey(keysOf(bundle), from, 'former')
            ? bundles.retireCaCertificate(bundle, { ca, serial: from, now, opensAt: opensAt(bundle, from), forcedReason: '' })
            : unchanged(bundle),
        ),
      ),
    processes: (view) => countHolders(options, view),
  };
}

/** The workflow holds at this refusal: the renewal by hand is what it waits for, and it goes on from there. */
const sayByHand =
  (subject: RenewedCa) =>
  (error: unknown): never => {
    if (!(error instanceof ControlError) || error.details['reason'] !== 'key-offline') throw error;
    const byHand = `better-compute pki renew-ca --ca ${subject} --root-key FILE`;
    throw new ControlError(
      'INVALID_STATE',
      `the root's private key is offline: renew by hand (${byHand}), then better-compute rotation resume --key ca --ca ${subject}`,
      { details: { ...error.details, hint: byHand }, cause: error },
    );
  };

function createTicketKey(options: ExchangedKeysOptions): ExchangedKeyPort {
  const { steps } = options;
  const keysOf = (bundle: bundles.PkiBundle): KeyStanding[] => {
    const { execTicketKey: present, execTicketKeyNext: next, execTicketKeyFormer: former, execTicketTimes: times } = bundle;
    const stoppedAt = times?.formerStoppedAt ?? null;
    return [
      ...(present === undefined ? [] : [{ id: jwkThumbprint(present.spki), state: 'signing', opensAt: null } as const]),
      ...(next === undefined ? [] : [{ id: jwkThumbprint(next.spki), state: 'waiting', opensAt: null } as const]),
      ...(former === undefined || stoppedAt === null
        ? []
        : [{ id: jwkThumbprint(former.spki), state: 'former', opensAt: stoppedAt + bundles.ticketRetireAfterMs } as const]),
    ];
  };
  const show = (bundle: bundles.PkiBundle): KeyView => viewOf(bundle, keysOf(bundle));
  return {
    read: async () => show(await steps.read()),
    add: async ({ from, refuse }) =>
      show(
        await steps.take(async (bundle, now) => {
          const signing = keysOf(bundle).find(({ state }) => state === 'signing')?.id ?? null;
          if (signing !== from || bundle.execTicketKeyNext !== undefined) return unchanged(bundle);
          await refuse();
          return bundles.addExecTicketKey(withoutOldFormer(bundle, now), { now });
        }),
      ),
    promote: async ({ to }) =>
      show(
        await steps.take((bundle, now) =>
          hasKey(keysOf(bundle), to, 'signing')
            ? unchanged(bundle)
            : bundles.promoteExecTicketKey(assertWaits(bundle, keysOf(bundle), to), { now }),
        ),
      ),
    retire: async ({ from }) =>
      show(
        await steps.take((bundle, now) => {
          if (hasKey(keysOf(bundle), from, 'waiting')) return bundles.withdrawExecTicketKey(bundle);
          return hasKey(keysOf(bundle), from, 'former') ? bundles.retireExecTicketKey(bundle, { now }) : unchanged(bundle);
        }),
      ),
    processes: (view) => countHoldersAndSpecs(options, view),
  };
}

/** An exchange by hand may have left it; the next one needs its place. @throws NOT_YET while a ticket it signed may be valid */
function withoutOldFormer(bundle: bundles.PkiBundle, now: number): bundles.PkiBundle {
  const opensAt = (bundle.execTicketTimes?.formerStoppedAt ?? 0) + bundles.ticketRetireAfterMs;
  if (bundle.execTicketKeyFormer === undefined) return bundle;
  if (now >= opensAt) return bundles.retireExecTicketKey(bundle, { now }).bundle;
  throw new ControlError('NOT_YET', 'the key of the last exchange is still listed: tickets it signed may be valid', {
    details: { reason: 'former-listed', retryAfterMs: opensAt - now },
  });
}

function assertWaits(bundle: bundles.PkiBundle, keys: readonly KeyStanding[], to: string): bundles.PkiBundle {
  if (hasKey(keys, to, 'waiting')) return bundle;
  throw new ControlError('INVALID_STATE', `key ${to} does not wait in the key bundle: another exchange has replaced it`, {
    details: { reason: 'replaced-since' },
  });
}

function createWorkloadKey(options: ExchangedKeysOptions): ExchangedKeyPort {
  const { db, steps } = options;
  const actor = 'rotate-workload-key';
  const settings = (): workload.WorkloadSettings => {
    if (options.workload !== null) return options.workload;
    throw new ControlError('INVALID_CONFIG', 'the signing worker is not told the workload issuer', {
      details: { reason: 'no-workload-issuer', hint: 'set BETTER_COMPUTE_WORKLOAD_ISSUER for it as for the api' },
    });
  };
  const keys = async (): Promise<KeyStanding[]> =>
    (await workload.listWorkloadKeys(db, settings())).map(({ kid, state, promoteOpensAt, retireOpensAt }) => ({
      id: kid,
      state,
      opensAt: { waiting: promoteOpensAt, signing: null, former: retireOpensAt }[state],
    }));
  const show = async (): Promise<KeyView> => viewOf(await steps.read(), await keys());
  return {
    read: show,
    add: async ({ from, refuse }) => {
      if (from !== null && hasKey(await keys(), from, 'signing')) {
        await refuse();
        await workload.addWorkloadKey(db, settings(), { actor });
      }
      return show();
    },
    promote: async ({ to }) => {
      await workload.promoteWorkloadKey(db, settings(), { kid: to, actor });
      return show();
    },
    retire: async ({ from }) => {
      if ((await keys()).some(({ id }) => id === from)) await workload.retireWorkloadKey(db, settings(), { kid: from, actor });
      return show();
    },
    processes: async () => ({ verdict: { kind: 'open' }, processes: [] }),
  };
}

type Count = ReturnType<ExchangedKeyPort['processes']>;

/** Heartbeats are written by the database's clock, and judged by it. */
async function countHolders({ db }: ExchangedKeysOptions, view: KeyView): Count {
  const [all, now] = [await listProcesses(db), await databaseNow(db)];
  const rows = all.filter((row) => row.bundleDigest !== null);
  const verdict = judgeProcesses(rows, { bundleDigest: view.bundle.digest, publishedVersion: 0, now });
  return {
    verdict,
    processes: live(rows, now).map((row) => ({ ...nameOf(row), runs: row.bundleDigest })),
  };
}

/** The nodes verify tickets by their desired state (EXEC-006): the next key signs when every one names it. */
async function countHoldersAndSpecs(options: ExchangedKeysOptions, view: KeyView): Count {
  const counted = await countHolders(options, view);
  if (counted.verdict.kind === 'closed') return counted;
  const left = await options.specs();
  if (left === 0) return counted;
  const message = `the desired state of ${left} node(s) does not name the ticket keys of this bundle yet`;
  return { ...counted, verdict: { kind: 'closed', reason: 'specs-behind', message, behind: [] } };
}

async function countGateways({ db }: ExchangedKeysOptions, view: KeyView): Count {
  const [rows, now] = [await listProcesses(db), await databaseNow(db)];
  const verdict = judgeGateways(rows, { serial: view.keys[0]?.id ?? '', now });
  return {
    verdict,
    processes: live(rows, now).flatMap((row) => (row.kind === 'gateway' ? [{ ...nameOf(row), runs: row.servingSerial }] : [])),
  };
}

const live = (rows: readonly ProcessRow[], now: number): readonly ProcessRow[] =>
  rows.filter((row) => now - row.lastSeenAt <= processLiveWithinMs);
const nameOf = ({ id, kind }: ProcessRow): { id: string; kind: string } => ({ id, kind });
