/**
 * `bcd join`: a machine without an identity asks for one (JOIN-008 to JOIN-015). What it believes comes from the join string alone:
 * the pin of the serving CA, the JoinService key and the trust domain.
 *
 * The key and the request are kept on disk until the answer has been: a join whose answer got lost asks again with the same CSR,
 * and the control plane answers with the same node (JOIN-014). The nonce is new each time, so no old answer is taken.
 */
import { createHash, createPrivateKey, type KeyObject } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { ControlError, codeOf } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import type { JoinBundle } from '../pki/enroll/index.ts';
import { createCsr } from '../pki/x509/index.ts';
import type { JoinResponseBody } from '../proto/index.ts';
import { assertApproversKnown, type Granted, identityFrom, installIdentity, sayApprovers, type TakeOptions } from './granted.ts';
import { callJoin, type JoinCall, waitAfter } from './join-call.ts';
import { neverCrash } from './state/crash-points.ts';
import { openPrivateFolder } from './state/files.ts';
import { findIdentity, generateNodeKey, type Identity, type StoredIdentity } from './state/identity.ts';
import { readJsonFile, writeJsonFile } from './state/json-file.ts';
import { lockFolder } from './state/lock.ts';
import { freshBackoff } from './transport/backoff.ts';
import { refusalFacts } from './transport/grpc-status.ts';

export interface JoinOptions extends JoinCall, TakeOptions {
  readonly bundle: JoinBundle;
  readonly nodeId?: string;
  /** What the attestor judges, or who vouches for this very key, asked anew at each try; null: the token of the bundle. */
  readonly evidence: Uint8Array | null | ((csr: Uint8Array) => Promise<Uint8Array>);
  /** The evidence with the answer to what the attestor asks back. Absent: it is asked nothing that could be answered. */
  readonly answer?: (asked: { readonly challenge: Uint8Array; readonly csr: Uint8Array }) => Promise<Uint8Array>;
  /** A key that was made before, with its request. Absent: one that is kept in the folder until the answer was. */
  readonly request?: PreparedRequest;
  /** Put a new identity in the place of one that is there. */
  readonly replace: boolean;
  /** How long to try while the control plane cannot answer, and to wait for a deferred join. */
  readonly patienceMs: number;
  readonly random: () => number;
  readonly sleep: (ms: number) => Promise<void>;
}

export interface PreparedRequest {
  readonly key: KeyObject;
  readonly csr: Uint8Array;
}

/** @throws INVALID_STATE when the machine has joined already and `replace` is not set; what the control plane refuses with */
export async function joinNode(options: JoinOptions): Promise<Identity> {
  const { crash = neverCrash } = options;
  await openPrivateFolder(options.dataDir);
  const lock = await lockFolder(options.dataDir);
  try {
    const former = await formerIdentity(options);
    assertApproversKnown(options, former);
    const request = options.request ?? (await pendingRequest(options));
    crash('join-unasked');
    const body = await askUntilAnswered(options, request);
    crash('join-answered');
    const identity = identityFrom(body, { key: request.key, former }, options);
    sayApprovers(identity, former, options);
    await installIdentity({ identity, key: request.key }, former, options);
    crash('join-installed');
    if (options.request === undefined) await rm(pendingPath(options.dataDir), { force: true });
    return identity;
  } finally {
    await lock.release();
  }
}

async function formerIdentity({ dataDir, replace }: JoinOptions): Promise<Identity | undefined> {
  let found: StoredIdentity | undefined;
  try {
    found = await findIdentity(dataDir);
  } catch (error) {
    // A damaged identity is what --replace is for; its bytes stay under .previous.
    if (!replace || codeOf(error) !== 'DATA_CORRUPT') throw error;
    return undefined;
  }
  if (found === undefined || replace) return found?.identity;
  throw new ControlError(
    'INVALID_STATE',
    `this machine has joined already, as node ${found.identity.nodeId} of ${found.identity.trustDomain}`,
    {
      details: { reason: 'already-joined', hint: `to give it a new identity: bcd join --replace --data-dir ${dataDir} <join string>` },
    },
  );
}

const pendingPath = (folder: string): string => join(folder, 'join-pending.json');

const pendingSchema = z.strictObject({
  format: z.literal('better-compute/join-pending/1'),
  joinSha256: z.string(),
  csr: z.base64(),
  key: z.string(),
});

/** The same request for the same join string, across restarts. */
async function pendingRequest({ dataDir, bundle }: JoinOptions): Promise<PreparedRequest> {
  const joinSha256 = createHash('sha256').update(`${bundle.trustDomain}\0${bundle.token}`).digest('hex');
  const found = await readJsonFile(pendingPath(dataDir), pendingSchema, 64 * 1024).catch(() => undefined);
  if (found?.joinSha256 === joinSha256) return { key: createPrivateKey(found.key), csr: Buffer.from(found.csr, 'base64') };
  const key = generateNodeKey();
  const csr = await createCsr({ key });
  const pem = key.export({ type: 'pkcs8', format: 'pem' });
  await writeJsonFile(pendingPath(dataDir), {
    format: 'better-compute/join-pending/1',
    joinSha256,
    csr: Buffer.from(csr).toString('base64'),
    key: pem,
  });
  return { key, csr };
}

/** Tries again while a retry can help and patience lasts; waits out a deferral. */
async function askUntilAnswered(options: JoinOptions, request: PreparedRequest): Promise<Granted> {
  const until = options.now() + options.patienceMs;
  let backoff = freshBackoff;
  for (;;) {
    let waitMs: number;
    try {
      const body = await askAndAnswer(options, request);
      if (isGranted(body)) return body;
      waitMs = deferralMs(body);
      // What an operator compares who is asked for a word.
      const asked = createHash('sha256').update(request.csr).digest('hex').slice(0, 16);
      options.say(`the control plane defers the join (request ${asked}): asking again in ${Math.ceil(waitMs / second)} s`);
      if (options.now() + waitMs > until)
        throw new ControlError(
          'NOT_YET',
          `the control plane deferred the join by ${Math.ceil(waitMs / second)} s, longer than --wait allows`,
          { details: { reason: 'join-deferred' } },
        );
    } catch (error) {
      if (options.signal?.aborted === true || refusalFacts(error).reason === 'join-deferred') throw error;
      ({ backoff, waitMs } = waitAfter(error, { backoff, random: options.random }));
      if (options.now() + waitMs > until) throw error;
      options.say(`${(error as Error).message}; trying again`);
    }
    await options.sleep(waitMs);
    if (options.signal?.aborted === true) throw new ControlError('CANCELLED', 'the join was given up', { details: { reason: 'given-up' } });
  }
}

const isGranted = (body: JoinResponseBody): body is Granted => body.outcome.case === 'granted';

function deferralMs({ outcome }: JoinResponseBody): number {
  if (outcome.case !== 'deferral')
    throw new ControlError('MALFORMED', 'the join answer neither grants nor defers', { details: { reason: 'join-outcome' } });
  return Math.max(1, outcome.value.retryAfterSeconds) * second;
}

/** JOIN-014: asks, and where it is asked back, asks again at once with the answer and the same CSR. */
async function askAndAnswer(options: JoinOptions, request: PreparedRequest): Promise<JoinResponseBody> {
  const { evidence, bundle, answer } = options;
  const { csr } = request;
  const shown = typeof evidence === 'function' ? await evidence(csr) : (evidence ?? Buffer.from(bundle.token, 'utf8'));
  const first = await callJoin(options, { csr, evidence: shown });
  const challenge = challengeOf(first);
  if (challenge === null) return first;
  if (answer === undefined) throw unanswered('the control plane asks the attestor a question, which this daemon cannot answer');
  const second = await callJoin(options, { csr, evidence: await answer({ challenge, csr }) });
  if (challengeOf(second) !== null) throw unanswered('the control plane asks the attestor again what was answered');
  return second;
}

const challengeOf = ({ outcome }: JoinResponseBody): Uint8Array | null =>
  outcome.case === 'deferral' && outcome.value.challenge.length > 0 ? outcome.value.challenge : null;

const unanswered = (message: string): ControlError =>
  new ControlError('UNSUPPORTED', message, { details: { reason: 'attestor-challenge' } });
