/**
 * `bcd join`: a machine without an identity asks for one (JOIN-008 to JOIN-015). What it believes comes from the join string alone:
 * the pin of the serving CA, the JoinService key and the trust domain.
 *
 * The key and the request are kept on disk until the answer has been: a join whose answer got lost asks again with the same CSR,
 * and the control plane answers with the same node (JOIN-014). The nonce is new each time, so no old answer is taken.
 */
import { createHash, createPrivateKey, type KeyObject, randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { ControlError, codeOf, errorTable } from '../domain/errors.ts';
import { second } from '../domain/time.ts';
import { type JoinBundle, verifyJoinResponse } from '../pki/enroll/index.ts';
import { acceptTrustBundle, approverSetDigest } from '../pki/trust/index.ts';
import { createCsr, grantedIdentityOf, type NodeIdentity, parseCertificate, spkiOf, verifyChain } from '../pki/x509/index.ts';
import { bounds, encodeMessage, type JoinGranted, JoinRequestSchema, type JoinResponseBody } from '../proto/index.ts';
import { type HostFiles, hardwareClaims } from './kinds/inventory.ts';
import { openPrivateFolder } from './state/files.ts';
import { findIdentity, generateNodeKey, type Identity, identityRoles, type StoredIdentity, saveIdentity } from './state/identity.ts';
import { readJsonFile, writeJsonFile } from './state/json-file.ts';
import { lockFolder } from './state/lock.ts';
import type { TpmPlace } from './tpm/machine-tpm.ts';
import { freshBackoff, nextDial } from './transport/backoff.ts';
import { callGateway } from './transport/call.ts';
import { refusalFacts } from './transport/grpc-status.ts';
import { dialPinned } from './transport/pinned-connection.ts';
import { daemonVersion } from './version.ts';

export interface JoinOptions {
  readonly dataDir: string;
  readonly bundle: JoinBundle;
  readonly role: 'node' | 'site' | 'ramdisk';
  readonly attestor: string;
  /** What the attestor judges, or who vouches for this very key, asked anew at each try; null: the token of the bundle. */
  readonly evidence: Uint8Array | null | ((csr: Uint8Array) => Promise<Uint8Array>);
  /** The evidence with the answer to what the attestor asks back. Absent: it is asked nothing that could be answered. */
  readonly answer?: (asked: { readonly challenge: Uint8Array; readonly csr: Uint8Array }) => Promise<Uint8Array>;
  /** The node that this machine takes itself for (JOIN-016); another one is not taken. */
  readonly nodeId?: string;
  /** Where the TPM is that answers; kept with the identity, for its renewals. Default: none. */
  readonly tpm?: TpmPlace | null;
  /** Put a new identity in the place of one that is there. */
  readonly replace: boolean;
  /** How long to try while the control plane cannot answer, and to wait for a deferred join. */
  readonly patienceMs: number;
  readonly host: HostFiles;
  readonly random: () => number;
  readonly now: () => number;
  /** Talk for a person. */
  readonly say: (text: string) => void;
  readonly sleep: (ms: number) => Promise<void>;
}

const callWithinMs = 30 * second;

/** @throws INVALID_STATE when the machine has joined already and `replace` is not set; what the control plane refuses with */
export async function joinNode(options: JoinOptions): Promise<Identity> {
  await openPrivateFolder(options.dataDir);
  const lock = await lockFolder(options.dataDir);
  try {
    const former = await formerIdentity(options);
    const request = await pendingRequest(options);
    const body = await askUntilAnswered(options, request);
    const identity = identityFrom(body, options, request.key);
    sayApprovers(options, { identity, former });
    await installIdentity(options.dataDir, { identity, key: request.key }, former);
    await rm(pendingPath(options.dataDir), { force: true });
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

interface PendingRequest {
  readonly key: KeyObject;
  readonly csr: Uint8Array;
}

const pendingPath = (folder: string): string => join(folder, 'join-pending.json');

const pendingSchema = z.strictObject({
  format: z.literal('better-compute/join-pending/1'),
  joinSha256: z.string(),
  csr: z.base64(),
  key: z.string(),
});

/** The same request for the same join string, across restarts. */
async function pendingRequest({ dataDir, bundle }: JoinOptions): Promise<PendingRequest> {
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

type Granted = JoinResponseBody & { readonly outcome: { readonly case: 'granted'; readonly value: JoinGranted } };

/** Tries again while a retry can help and patience lasts; waits out a deferral. */
async function askUntilAnswered(options: JoinOptions, request: PendingRequest): Promise<Granted> {
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
      if (!errorTable[codeOf(error)].retryable || refusalFacts(error).reason === 'join-deferred') throw error;
      const next = nextDial(backoff, { heldMs: 0, pushbackMs: refusalFacts(error).pushbackMs, reconnectWindowMs: 0 }, options);
      backoff = next.state;
      waitMs = next.delayMs;
      if (options.now() + waitMs > until) throw error;
      options.say(`${(error as Error).message}; trying again`);
    }
    await options.sleep(waitMs);
  }
}

const isGranted = (body: JoinResponseBody): body is Granted => body.outcome.case === 'granted';

function deferralMs({ outcome }: JoinResponseBody): number {
  if (outcome.case !== 'deferral')
    throw new ControlError('MALFORMED', 'the join answer neither grants nor defers', { details: { reason: 'join-outcome' } });
  return Math.max(1, outcome.value.retryAfterSeconds) * second;
}

/** JOIN-014: asks, and where it is asked back, asks again at once with the answer and the same CSR. */
async function askAndAnswer(options: JoinOptions, request: PendingRequest): Promise<JoinResponseBody> {
  const { evidence, bundle, answer } = options;
  const { csr } = request;
  const shown = typeof evidence === 'function' ? await evidence(csr) : (evidence ?? Buffer.from(bundle.token, 'utf8'));
  const first = await askOnce(options, request, shown);
  const challenge = challengeOf(first);
  if (challenge === null) return first;
  if (answer === undefined) throw unanswered('the control plane asks the attestor a question, which this daemon cannot answer');
  const second = await askOnce(options, request, await answer({ challenge, csr }));
  if (challengeOf(second) !== null) throw unanswered('the control plane asks the attestor again what was answered');
  return second;
}

const challengeOf = ({ outcome }: JoinResponseBody): Uint8Array | null =>
  outcome.case === 'deferral' && outcome.value.challenge.length > 0 ? outcome.value.challenge : null;

const unanswered = (message: string): ControlError =>
  new ControlError('UNSUPPORTED', message, { details: { reason: 'attestor-challenge' } });

async function askOnce(
  { bundle, role, attestor, nodeId = '', host, now }: JoinOptions,
  { csr }: PendingRequest,
  evidence: Uint8Array,
): Promise<JoinResponseBody> {
  const nonce = randomBytes(32);
  const message = {
    attestor,
    evidence,
    csr,
    role,
    daemonVersion,
    hardware: await hardwareClaims(host),
    nonce,
    nodeId,
  };
  const connection = await dialPinned({ gateway: gatewayOf(bundle), client: null, now: now(), timeoutMs: callWithinMs });
  try {
    const request = encodeMessage(JoinRequestSchema, message, 'joinRequest');
    const answer = await callGateway(connection, { method: 'Join', request, maxAnswerBytes: bounds.joinResponse, timeoutMs: callWithinMs });
    return verifyJoinResponse(answer, { joinKey: bundle.joinKey, nonce, csrSha256: createHash('sha256').update(csr).digest() });
  } finally {
    connection.destroy();
  }
}

const gatewayOf = ({ gateway, serverName, servingCaPin }: JoinBundle) => ({
  gatewayUrl: gateway,
  gatewayServerName: serverName ?? null,
  servingCaPin,
});

/** What was granted, checked against itself: our key, the named node, a chain that holds, trust of this deployment. */
function identityFrom({ outcome, serverTimeMs }: Granted, { bundle, nodeId: wanted, tpm = null }: JoinOptions, key: KeyObject): Identity {
  const { nodeId, siteId, chain, generation, trust } = outcome.value;
  const now = Number(serverTimeMs);
  const leaf = parseCertificate(chain[0] as Uint8Array);
  if (!Buffer.from(leaf.spki).equals(spkiOf(key))) throw unfit('the certificate is for another key');
  verifyChain(chain, { anchors: chain.slice(1), purpose: 'client', now: Math.max(now, leaf.notBefore) });
  const named = grantedIdentityOf(leaf, bundle.trustDomain);
  assertNamed(named, outcome.value, wanted);
  if (trust === undefined) throw unfit('the answer carries no trust bundle');
  const approverSetPin = bundle.approverSetSha256 ?? null;
  const pin = approverSetPin === null ? {} : { approverSetPin };
  const decision = acceptTrustBundle(null, trust, { now, minOverlapMs: 0, trustDomain: bundle.trustDomain, ...pin });
  if (decision.kind !== 'take') throw unfit(`its trust bundle: ${decision.kind === 'refuse' ? decision.detail : decision.reason}`);
  const { gatewayUrl, gatewayServerName, servingCaPin } = gatewayOf(bundle);
  const role = identityRoles.find((one) => one === named.role) ?? 'node';
  const { signaturesRequired, quorum, approverSetEpoch } = decision.held;
  return {
    nodeId,
    siteId,
    role,
    trustDomain: bundle.trustDomain,
    generation,
    gatewayUrl,
    gatewayServerName,
    servingCaPin,
    joinKey: bundle.joinKey,
    chain,
    trust,
    signaturesRequired,
    quorum: { kind: 'held', fields: quorum, epoch: approverSetEpoch },
    approverSetPin,
    joinedAtMs: now,
    tpm,
  };
}

function assertNamed(named: NodeIdentity, { nodeId, siteId }: JoinGranted, wanted: string | undefined): void {
  if (named.nodeId !== nodeId || named.siteId !== siteId)
    throw unfit(`the certificate is for ${named.spiffeId}, the answer for node ${nodeId} of site ${siteId}`);
  if (wanted !== undefined && wanted !== nodeId) throw unfit(`it is for node ${nodeId}, and this machine is to be ${wanted}`);
}

const unfit = (message: string): ControlError =>
  new ControlError('PERMISSION_DENIED', `the join answer does not fit: ${message}`, { details: { reason: 'join-unfit' } });

/**
 * A new identity counts its sessions anew, and its join answer is the newest signed word about the time: what an earlier one was
 * told goes, so that joining again is a way out of it. Another node's desired state means nothing to this one; its journal
 * does no harm and is kept.
 */
async function installIdentity(folder: string, next: StoredIdentity, former: Identity | undefined): Promise<void> {
  const { identity, key } = next;
  const sameDeployment = former?.trustDomain === identity.trustDomain;
  if (sameDeployment && former.signaturesRequired && identity.trust.commandRoots.length === 0) {
    throw unfit('it holds no command root, and this machine already required signatures in this deployment');
  }
  if (sameDeployment && holdsSet(former) && !holdsSet(identity) && identity.approverSetPin === null) {
    throw unfit(
      `it names no approver, and this machine enforced an approver set in this deployment: give the set by --approver-set-sha256, or, when the approvers took it away, remove ${folder} first`,
    );
  }
  if (former !== undefined && (former.nodeId !== identity.nodeId || !sameDeployment)) {
    await rm(join(folder, 'desired-state.json'), { force: true });
  }
  await rm(join(folder, 'marks.json'), { force: true });
  await saveIdentity(folder, { identity, key });
}

const holdsSet = ({ quorum }: Identity): boolean => quorum.kind === 'unreadable' || quorum.fields.approverKeys.length > 0;

/** Whose word this machine will ask for: the one moment at which a set is taken as it comes. */
function sayApprovers({ say }: JoinOptions, { identity, former }: { identity: Identity; former: Identity | undefined }): void {
  const { quorum, approverSetPin, trust } = identity;
  if (quorum.kind === 'unreadable') return;
  const digest = approverSetDigest(quorum.fields);
  if (holdsSet(identity)) {
    const pinned = approverSetPin === null ? 'not pinned: compare it with pki trust-version' : 'as pinned';
    say(`approver set ${digest} of epoch ${quorum.epoch} taken, ${pinned}`);
    if (former?.quorum.kind === 'held' && holdsSet(former) && approverSetDigest(former.quorum.fields) !== digest)
      say(`this machine enforced the approver set ${approverSetDigest(former.quorum.fields)} before`);
  } else if (approverSetPin !== null) {
    const offered = trust.approverKeys.length === 0 ? 'none is published' : 'another one is published';
    say(`destructive commands are refused until the approver set ${approverSetPin} comes: ${offered}`);
  }
}
