/** One question to the JoinService, over a connection to the pinned gateway, and its answer: signed by the pinned key, for this very question. */
import { createHash, randomBytes } from 'node:crypto';
import { codeOf, errorTable } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import { type ControlPlanePins, verifyJoinResponse } from '../pki/enroll/index.ts';
import { bounds, encodeMessage, JoinRequestSchema, type JoinResponseBody } from '../proto/index.ts';
import { type HostFiles, hardwareClaims } from './kinds/inventory.ts';
import { type BackoffState, nextDial } from './transport/backoff.ts';
import { callGateway } from './transport/call.ts';
import { refusalFacts } from './transport/grpc-status.ts';
import { dialPinned, type GatewayAddress } from './transport/pinned-connection.ts';
import { daemonVersion } from './version.ts';

/** Who asks whom. */
export interface JoinCall {
  readonly bundle: Pick<ControlPlanePins, 'gateway' | 'serverName' | 'servingCaPin' | 'joinKey'>;
  readonly role: 'node' | 'site' | 'ramdisk';
  readonly attestor: string;
  /** The node that this machine takes itself for (JOIN-016); another one is not taken. */
  readonly nodeId?: string;
  readonly host: HostFiles;
  readonly now: () => number;
  /** Gives the call up. */
  readonly signal?: AbortSignal;
}

export interface JoinQuestion {
  readonly csr: Uint8Array;
  readonly evidence: Uint8Array;
}

const callWithinMs = 30 * second;

/**
 * The nonce is new each time, so no old answer is taken.
 *
 * @throws UNAVAILABLE and what the control plane refuses with; PERMISSION_DENIED, BAD_SIGNATURE, CERTIFICATE_EXPIRED for a gateway or an answer that
 *   is not of the pinned control plane; REPLAYED, MALFORMED
 */
export async function callJoin(call: JoinCall, { csr, evidence }: JoinQuestion): Promise<JoinResponseBody> {
  const { bundle, role, attestor, nodeId = '', host, now, signal } = call;
  const nonce = randomBytes(32);
  const message = { attestor, evidence, csr, role, daemonVersion, hardware: await hardwareClaims(host), nonce, nodeId };
  const given = signal === undefined ? {} : { signal };
  const connection = await dialPinned({ gateway: gatewayOf(bundle), client: null, now: now(), timeoutMs: callWithinMs, ...given });
  const giveUp = (): void => connection.destroy();
  signal?.addEventListener('abort', giveUp, { once: true });
  try {
    const request = encodeMessage(JoinRequestSchema, message, 'joinRequest');
    const answer = await callGateway(connection, { method: 'Join', request, maxAnswerBytes: bounds.joinResponse, timeoutMs: callWithinMs });
    return verifyJoinResponse(answer, { joinKey: bundle.joinKey, nonce, csrSha256: createHash('sha256').update(csr).digest() });
  } finally {
    signal?.removeEventListener('abort', giveUp);
    connection.destroy();
  }
}

export const gatewayOf = ({ gateway, serverName, servingCaPin }: JoinCall['bundle']): GatewayAddress => ({
  gatewayUrl: gateway,
  gatewayServerName: serverName ?? null,
  servingCaPin,
});

/** How long to wait before it is asked again. @throws the error itself, when asking again cannot help */
export function waitAfter(
  error: unknown,
  { backoff, random }: { readonly backoff: BackoffState; readonly random: () => number },
): { readonly backoff: BackoffState; readonly waitMs: number } {
  if (!errorTable[codeOf(error)].retryable) throw error;
  const next = nextDial(backoff, { heldMs: 0, pushbackMs: refusalFacts(error).pushbackMs, reconnectWindowMs: 0 }, { random });
  return { backoff: next.state, waitMs: next.delayMs };
}
