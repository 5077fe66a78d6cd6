/** The string with which a deployed system joins as the machine of its run (JOIN-016): made once by the run, good for that one join. */
import assert from 'node:assert/strict';
import { toBinary } from '@bufbuild/protobuf';
import { day, hour } from '../../../domain/time.ts';
import { createBundle } from '../../../pki/bundle/index.ts';
import { type JoinTokenClaims, openJoinToken, parseJoinBundle, sealJoinToken, verifyJoinResponse } from '../../../pki/enroll/index.ts';
import { nodeIdentityOf, parseCertificate } from '../../../pki/x509/index.ts';
import { type JoinGranted, type JoinRequest, JoinRequestSchema } from '../../../proto/index.ts';
import { createGatewayServices } from '../../../services/gateway-services.ts';
import { finishRun, planRun } from '../../../services/metal/index.ts';
import { forgetRunSecrets, joinRefOf, openProvisionedJoin } from '../../../services/metal/run-secrets.ts';
import type { RunPlan } from '../../../services/metal/types.ts';
import { readSecret } from '../../../services/secrets/store.ts';
import { settleAndPublish } from '../../../services/trust-publication.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { publishQuorum } from '../batch-support.ts';
import { certificatesOf, joinRequest } from '../identity-support.ts';
import { csrOf, newKey, recordingLog, refused, sha256, testBundle, trustDomain } from '../support.ts';
import { addSite, availableMachine, bootRamdisk, now, runOf, siteId, stateOf } from './support.ts';

const secret = 'a secret of thirty-two characters at least';

describe('the join of a deployed system', () => {
  const used = useDatabase();
  let clock = now;
  let count = 0;

  before(async function () {
    this.timeout(30_000);
    await publishQuorum(used.db, null);
    await addSite(used.db);
    const bundle = await testBundle();
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now, log: recordingLog() });
  });
  beforeEach(() => void (clock = now));

  async function facts() {
    const { joinEncryption, joinSigning } = await testBundle();
    const pins = {
      gateway: 'https://gateway.example:7443',
      servingCaPin: `sha256/${'A'.repeat(43)}=`,
      joinKey: joinSigning.spki,
      trustDomain,
    };
    return { joinEncryption: joinEncryption.spki, pins, secret, now };
  }
  const stringOf = async ({ runId }: RunPlan): Promise<string> => {
    const found = await readSecret(used.db, { path: joinRefOf(runId).slice('secret://'.length), secret });
    return Buffer.from(found?.value ?? []).toString('utf8');
  };

  /** A machine in its ramdisk, with the join of its run open. */
  async function deployed(): Promise<{ plan: RunPlan; token: string; claims: JoinTokenClaims }> {
    count += 1;
    await availableMachine(used.db, `m-${count}`);
    const plan = await planRun(used.db, runOf(`m-${count}`, 'provision'));
    await bootRamdisk(used.db, plan);
    assert.equal(await openProvisionedJoin(used.db, plan.runId, await facts()), joinRefOf(plan.runId));
    const { token } = parseJoinBundle(await stringOf(plan));
    const { joinEncryption } = await testBundle();
    return { plan, token, claims: openJoinToken(joinEncryption.privateKey, token, { trustDomain }) };
  }

  async function send(message: JoinRequest): Promise<JoinGranted> {
    const bundle = await testBundle();
    const services = createGatewayServices({ db: used.db, bundle: () => bundle, log: recordingLog(), now: () => clock });
    const response = await services.join(toBinary(JoinRequestSchema, message));
    const body = verifyJoinResponse(response, { joinKey: bundle.joinSigning.spki, nonce: message.nonce, csrSha256: sha256(message.csr) });
    assert.equal(body.outcome.case, 'granted');
    return body.outcome.value;
  }
  const join = async (token: string, key = newKey(), attestor = 'provisioned'): Promise<JoinGranted> =>
    send(await joinRequest(key, token, { attestor }));

  it('JOIN-016 makes the ramdisk of the run that machine’s node, in its next generation, once; the string is the run’s own and stays the same', async () => {
    const { plan, token, claims } = await deployed();
    assert.deepEqual([claims.nodeId, claims.siteId, claims.role], [plan.machineId, siteId, 'node']);
    const string = await stringOf(plan);
    assert.match(string, /^bcjoin1\./);
    await openProvisionedJoin(used.db, plan.runId, await facts());
    assert.equal(await stringOf(plan), string, 'a step that is repeated makes no second token');
    const before = await stateOf(used.db, plan.machineId);
    const { nodeId, generation, chain } = await join(token);
    assert.deepEqual([nodeId, Number(generation)], [plan.machineId, (before?.generation ?? 0) + 1]);
    const after = await stateOf(used.db, plan.machineId);
    assert.deepEqual([after?.node, after?.role], ['active', 'node']);
    const { role } = nodeIdentityOf(parseCertificate(chain[0] as Uint8Array), trustDomain);
    assert.equal(role, 'node');
    const certificates = await certificatesOf(used.db, plan.machineId);
    assert.deepEqual(
      certificates.map(({ revoked }) => revoked),
      [true, false],
      'the ramdisk’s certificate ends with it',
    );
  });

  it('JOIN-016 used twice: the same machine is answered again, another key is refused, also when they come together', async () => {
    const { plan, token } = await deployed();
    const key = newKey();
    const csr = await csrOf(key);
    const again = async () => send(await joinRequest(key, token, { attestor: 'provisioned', csr }));
    const first = await again();
    assert.deepEqual((await again()).chain, first.chain);
    await assert.rejects(join(token), refused('PERMISSION_DENIED', new RegExp(`was used by node ${plan.machineId}`), 'token-used'));
    const other = await deployed();
    const answers = await Promise.allSettled(Array.from({ length: 6 }, () => join(other.token)));
    assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 1);
  });

  it('JOIN-016 of another machine: what a token says is not asked, its row is; a string of his own making joins nobody', async () => {
    const [mine, theirs] = [await deployed(), await deployed()];
    const { joinEncryption } = await testBundle();
    const seal = (claims: JoinTokenClaims): string => sealJoinToken(joinEncryption.spki, claims, { trustDomain });
    // Anybody can seal to a public key: the secret inside is what counts, and the row that knows its hash says for whom.
    const renamed = await join(seal({ ...mine.claims, nodeId: theirs.plan.machineId }));
    assert.equal(renamed.nodeId, mine.plan.machineId);
    assert.equal((await stateOf(used.db, theirs.plan.machineId))?.role, 'ramdisk');
    const unknown = refused('PERMISSION_DENIED', /is not known here/, 'token-unknown');
    await assert.rejects(join(seal({ ...theirs.claims, secret: new Uint8Array(32) })), unknown);
    await assert.rejects(join(seal({ ...theirs.claims, tokenId: mine.claims.tokenId })), unknown);
    await assert.rejects(join(seal({ ...theirs.claims, role: 'site' })), refused('PERMISSION_DENIED', /is for role site/, 'wrong-role'));
    const longer = seal({ ...theirs.claims, expiresAt: now + 365 * day });
    clock = now + 25 * hour;
    await assert.rejects(join(longer), refused('PERMISSION_DENIED', /has expired/, 'token-expired'));
  });

  it('JOIN-016 is for attestor provisioned alone, and an operator’s token is none', async () => {
    const { token } = await deployed();
    await assert.rejects(
      join(token, newKey(), 'join-token'),
      refused('PERMISSION_DENIED', /is for attestor provisioned, the request names join-token/, 'wrong-attestor'),
    );
    assert.ok(await join(token), 'the refusal did not use it up');
  });

  it('JOIN-016 a day later it is over', async () => {
    const { plan, token } = await deployed();
    clock = now + day;
    await assert.rejects(join(token), refused('PERMISSION_DENIED', /has expired/, 'token-expired'));
    assert.equal((await stateOf(used.db, plan.machineId))?.role, 'ramdisk');
    clock = now + day - 1;
    assert.ok(await join(token));
  });

  it('JOIN-024 of another deployment, another site or changed: nothing is used up', async () => {
    const { plan, token, claims } = await deployed();
    const foreign = refused('UNAUTHENTICATED', /was not made for this deployment, or was changed/, 'join-token');
    const changed = Buffer.from(token.slice(5), 'base64url');
    for (const at of [70, 90, changed.length - 1]) {
      const bytes = Buffer.from(changed);
      bytes[at] = (bytes[at] ?? 0) ^ 1;
      await assert.rejects(join(`bcj1.${bytes.toString('base64url')}`), foreign);
    }
    const other = await createBundle({ trustDomain: 'other.example', now: now - day });
    await assert.rejects(join(sealJoinToken(other.joinEncryption.spki, claims, { trustDomain })), foreign);
    const { joinEncryption } = await testBundle();
    await assert.rejects(join(sealJoinToken(joinEncryption.spki, claims, { trustDomain: 'other.example' })), foreign);
    await used.db.query({ text: `insert into sites (id, created_at) values ('elsewhere', now())` });
    const siteOf = (id: string) => used.db.query({ text: 'update join_tokens set site_id = $2 where id = $1' }, [claims.tokenId, id]);
    await siteOf('elsewhere');
    await assert.rejects(
      join(token),
      refused('PERMISSION_DENIED', /is a ramdisk of site berlin, .* names a node of elsewhere/, 'node-differs'),
    );
    await siteOf(siteId);
    assert.equal((await join(token)).nodeId, plan.machineId);
  });

  it('JOIN-016 a run that ended opens none, and what it had made is forgotten; its string joins nobody', async () => {
    const { plan, token } = await deployed();
    await finishRun(used.db, { runId: plan.runId, end: 'cancelled', reason: 'no', actor: 'olga', now });
    await forgetRunSecrets(used.db, plan.runId, now);
    assert.equal(await stringOf(plan), '');
    await assert.rejects(
      openProvisionedJoin(used.db, plan.runId, await facts()),
      refused('INVALID_STATE', /has ended: cancelled/, 'run-ended'),
    );
    const standing = await stateOf(used.db, plan.machineId);
    await assert.rejects(
      join(token),
      refused('PERMISSION_DENIED', new RegExp(`was made by run ${plan.runId}, which has ended`), 'run-ended'),
    );
    assert.deepEqual(await stateOf(used.db, plan.machineId), standing);
    const done = await deployed();
    const key = newKey();
    const csr = await csrOf(key);
    const answer = async () => send(await joinRequest(key, done.token, { attestor: 'provisioned', csr }));
    const first = await answer();
    await finishRun(used.db, { runId: done.plan.runId, end: 'done', reason: '', actor: 'olga', now });
    assert.deepEqual(
      (await answer()).chain,
      first.chain,
      'a machine that lost its answer gets it, also when the run has ended by its join',
    );
  });
});
