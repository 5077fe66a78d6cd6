/**
 * Whether this machine reaches the control plane that it is to be enrolled at (XC-041), before anything is minted there: the JoinService's own signed
 * word, for a nonce of this moment, about this enrolment. A page that answers 200, a gateway with another key, another deployment and an old answer
 * are each told apart.
 *
 * It is asked with a key that is thrown away: the gateway need not see the real request before it counts.
 */
import { encodeEnrolmentEvidence } from '../../domain/enrolment/evidence.ts';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { createCsr } from '../../pki/x509/index.ts';
import type { JoinResponseBody } from '../../proto/index.ts';
import { callJoin, type JoinCall, waitAfter } from '../join-call.ts';
import { generateNodeKey } from '../state/identity.ts';
import { freshBackoff } from '../transport/backoff.ts';
import type { PendingEnrolment } from './file.ts';

export interface ControlPlaneHealth {
  readonly trustDomain: string;
  /** Unix milliseconds, as the control plane signed it. */
  readonly serverTimeMs: number;
  /** How far the control plane's clock is ahead of this machine's, to half the time that the question took. */
  readonly clockOffMs: number;
}

export interface HealthOptions extends Pick<JoinCall, 'host' | 'now'> {
  /** How long to try again while it cannot be reached. */
  readonly patienceMs: number;
  readonly random: () => number;
  /** Talk for a person. */
  readonly say: (text: string) => void;
  readonly sleep: (ms: number) => Promise<void>;
}

const askWithinMs = 30 * second;

/** @throws as callJoin; INVALID_RESPONSE for an answer that is the pinned control plane's, and about something else */
export async function askHealth(pending: PendingEnrolment, options: HealthOptions): Promise<ControlPlaneHealth> {
  const until = options.now() + options.patienceMs;
  let backoff = freshBackoff;
  for (;;) {
    try {
      return await askOnce(pending, options);
    } catch (error) {
      const next = waitAfter(error, { backoff, random: options.random });
      if (options.now() + next.waitMs > until) throw error;
      backoff = next.backoff;
      options.say(`${(error as Error).message}; trying again`);
      await options.sleep(next.waitMs);
    }
  }
}

async function askOnce({ id, role, pins }: PendingEnrolment, { host, now }: HealthOptions): Promise<ControlPlaneHealth> {
  const question = { csr: await createCsr({ key: generateNodeKey() }), evidence: encodeEnrolmentEvidence({ asks: 'health', id }) };
  const askedAt = now();
  const signal = AbortSignal.timeout(askWithinMs);
  const body = await callJoin({ bundle: pins, role, attestor: 'enrolment', host, now, signal }, question);
  assertHealthOf(id, body);
  const serverTimeMs = Number(body.serverTimeMs);
  return { trustDomain: pins.trustDomain, serverTimeMs, clockOffMs: Math.round(serverTimeMs - (askedAt + now()) / 2) };
}

function assertHealthOf(id: string, { outcome }: JoinResponseBody): void {
  const said = outcome.case === 'deferral' ? Buffer.from(outcome.value.challenge).toString('latin1') : null;
  if (said === id) return;
  const what = said === null ? 'grants a join' : `is about ${said === '' ? 'nothing' : JSON.stringify(said.slice(0, 80))}`;
  throw new ControlError('INVALID_RESPONSE', `the answer to the health of enrolment ${id} ${what}`, {
    details: { reason: 'other-enrolment' },
  });
}
