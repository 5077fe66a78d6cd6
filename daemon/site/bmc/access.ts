/**
 * One operation on one controller: its address judged, its credential read when its turn has come, one client for as long as it takes,
 * everything closed in the end. What all handlers of controllers begin with.
 */
import { createHash } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import { z } from 'zod';
import { ControlError } from '../../../domain/errors.ts';
import { bindingOf } from '../../secrets/port.ts';
import { parseBmcAddress } from '../redfish/address.ts';
import { type Credential, versionOf } from '../redfish/authority.ts';
import { RedfishClient } from '../redfish/client.ts';
import { type BmcQueue, createBmcQueue } from './bmc-queue.ts';
import { createCredentialBroker, memoryRefusals, type RefusalStore } from './credential-broker.ts';
import type { BmcPorts } from './ports.ts';

/** What every payload of a controller's kind names. */
export interface BmcTarget {
  readonly address: string;
  readonly credentialRef: string;
  readonly pinSha256: string;
}

export interface OperationContext {
  readonly commandId: string;
  /** The command's own: one and the same over its preparation and its run. */
  readonly signal: AbortSignal;
}

export interface OperationOptions {
  readonly target: BmcTarget;
  readonly context: OperationContext;
  /** First contact: a key that nobody knows yet is taken and reported. */
  readonly mayMeet?: true;
}

export interface BmcAccess {
  /** @throws INVALID_INPUT (bmc-address, bmc-pin, bmc-credential) before anything is sent */
  run<T>(options: OperationOptions, operation: (client: RedfishClient) => Promise<T>): Promise<T>;
  /** A secret that the command names, as an account of a controller; asked for once in the life of `context.signal`. */
  readCredential(ref: string, context: OperationContext): Promise<Credential>;
}

const credentialSchema = z.object({ username: z.string().min(1).max(256), password: z.string().min(1).max(1024) });

export function createBmcAccess({ secrets, config, now, sleep = defaultSleep, refusals = memoryRefusals() }: BmcPorts): BmcAccess {
  const forever = new AbortController().signal;
  const queue: BmcQueue = createBmcQueue({ now, pause: (ms) => sleep(ms, forever) });
  // Each command asks once for each of its references (SEC-021), over its preparation and its run; what it was told goes with its signal.
  const told = new WeakMap<AbortSignal, Map<string, Credential>>();
  const readCredential: BmcAccess['readCredential'] = async (ref, { commandId, signal }) => {
    const known = told.get(signal) ?? new Map<string, Credential>();
    const credential = known.get(ref) ?? parseCredential(await secrets.read(ref, bindingOf(commandId), signal), { ref, refusals });
    told.set(signal, known.set(ref, credential));
    return credential;
  };
  return {
    readCredential,
    run: async ({ target, context, mayMeet }, operation) => {
      const address = parseBmcAddress(target.address, config.insecureHttp);
      const pinSha256 = judgePin(target, { isPlain: address.origin.startsWith('http:'), mayMeet: mayMeet === true });
      return queue.run(address.key, async () => {
        const credential = await readCredential(target.credentialRef, context);
        const guard = createCredentialBroker({ address: address.key, store: refusals, now });
        const requestPrefix = createHash('sha256').update(context.commandId).digest('hex').slice(0, 8);
        const { signal } = context;
        const client = new RedfishClient({ address, credential, guard, pinSha256, signal, now, sleep, requestPrefix });
        try {
          return await operation(client);
        } finally {
          await client.close();
        }
      });
    },
  };
}

const defaultSleep = (ms: number, signal: AbortSignal): Promise<void> => wait(ms, undefined, { signal });

function judgePin({ pinSha256, address }: BmcTarget, { isPlain, mayMeet }: { isPlain: boolean; mayMeet: boolean }): string | null {
  if (isPlain || (pinSha256 === '' && mayMeet)) return null;
  if (/^[0-9a-f]{64}$/.test(pinSha256)) return pinSha256;
  throw new ControlError(
    'INVALID_INPUT',
    `the pin of ${address} is not 64 lower-case hexadecimal digits; bmc.inventory reports what a controller shows`,
    {
      details: { reason: 'bmc-pin' },
    },
  );
}

function parseCredential(bytes: Uint8Array, { ref, refusals }: { ref: string; refusals: RefusalStore }): Credential {
  // Neither the text nor the parser's complaint may be seen: both would show the secret.
  const parsed = credentialSchema.safeParse(parseJson(bytes));
  if (parsed.success) return { ...parsed.data, version: versionOf(parsed.data, refusals.key) };
  throw new ControlError('INVALID_INPUT', `the secret ${ref} is not an account of a controller: JSON with "username" and "password"`, {
    details: { reason: 'bmc-credential' },
  });
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString('utf8'));
  } catch {
    return undefined;
  }
}
