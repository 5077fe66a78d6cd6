import assert from 'node:assert/strict';
import { clone } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { type Admission, type AdmissionState, admitCommand } from '../../daemon/agent/admission.ts';
import { decodeRecords, encodeRecord, segmentHeader } from '../../daemon/state/journal-records.ts';
import { maxCommandIdLength } from '../../domain/commands/ids.ts';
import { type CommandKind, commandKinds } from '../../domain/commands/kinds.ts';
import { hour, minute } from '../../domain/time.ts';
import { signCommand, verifyIntent } from '../../pki/envelope/index.ts';
import { bounds, type Command, CommandRejectReason, CommandSchema } from '../../proto/index.ts';
import { commandOf, createDeployment, sha256, type TestDeployment } from '../harness/deployment.ts';

const R = CommandRejectReason;

describe('admission of a command', () => {
  let deployment: TestDeployment;
  let good: Command;
  const now = Date.now();

  before(async () => {
    deployment = await createDeployment({ now });
    good = await commandOf(deployment, { id: 'c-1', epoch: 3n });
  });

  const stateWith = (over: Partial<AdmissionState> = {}, required = true): AdmissionState => ({
    nodeId: 'node-1',
    trustDomain: 'test.example',
    generation: 1n,
    role: 'node',
    epoch: 3n,
    upgradeRequired: false,
    findDigest: () => undefined,
    judgeQuorum: () => ({ kind: 'free' }),
    verify: ({ body, signature }, at) =>
      void verifyIntent({ purpose: 'command', body, signature, roots: [deployment.rootA.certificate.der], now: at, required }),
    ...over,
  });

  const rejected = (admission: Admission): CommandRejectReason | string =>
    admission.kind === 'reject' ? admission.reason : admission.kind;
  const digestOf = (command: Command): string => sha256(command.body).toString('hex');

  it('accepts what a worker under a held root signed for this node, and hands on what it read from the signed bytes', () => {
    const admission = admitCommand(stateWith(), good, now);
    assert.equal(admission.kind, 'accept');
    if (admission.kind !== 'accept') return;
    assert.deepEqual(
      [admission.command.id, admission.command.kind, admission.command.digest],
      ['c-1', 'inventory.refresh', digestOf(good)],
    );
    assert.equal(admission.command.payload.$typeName, 'bettercompute.agent.v1.InventoryRefresh');
  });

  it('SIGN-015 ENV-002 any changed bit of body, signature, kid or chain is never accepted', () => {
    const parts = ['body', 'sig', 'kid', 'chain'] as const;
    fc.assert(
      fc.property(fc.constantFrom(...parts), fc.nat(), fc.integer({ min: 0, max: 7 }), (part, at, bit) => {
        const command = clone(CommandSchema, good);
        const { signature } = command;
        assert.ok(signature);
        const flip = (bytes: Uint8Array): Uint8Array => {
          const out = Buffer.from(bytes);
          out.writeUInt8((out.at(at % out.length) ?? 0) ^ (1 << bit), at % out.length);
          return new Uint8Array(out);
        };
        if (part === 'body') command.body = flip(command.body);
        if (part === 'sig') signature.sig = flip(signature.sig);
        if (part === 'kid') signature.kid = Buffer.from(flip(Buffer.from(signature.kid))).toString('latin1');
        if (part === 'chain') signature.chain = [flip(signature.chain[0] as Uint8Array)];
        assert.notEqual(admitCommand(stateWith(), command, now).kind, 'accept', `${part} byte ${at} bit ${bit}`);
      }),
      { numRuns: 600 },
    );
  });

  it('BND-002 arbitrary bytes are refused and throw nothing', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), fc.uint8Array({ maxLength: 80 }), (body, sig) => {
        const command = clone(CommandSchema, good);
        command.body = body;
        if (command.signature !== undefined) command.signature.sig = sig;
        assert.equal(admitCommand(stateWith(), command, now).kind, 'reject');
      }),
      { numRuns: 500 },
    );
  });

  it('seq, epoch, batch fields: nothing outside the signed body can make a command run', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (seq, epoch) => {
        const unsigned = clone(CommandSchema, good);
        delete unsigned.signature;
        Object.assign(unsigned, { seq, epoch });
        assert.equal(rejected(admitCommand(stateWith(), unsigned, now)), R.UNSIGNED);
      }),
    );
  });

  it('BND-003 the bound comes before decoding and verifying', () => {
    const large = clone(CommandSchema, good);
    large.body = new Uint8Array(bounds.commandBody + 1);
    const verify = (): void => assert.fail('nothing is verified that is larger than the bound');
    const admission = admitCommand(stateWith({ verify }), large, now);
    assert.deepEqual(
      [rejected(admission), admission.kind === 'reject' && admission.detail],
      [R.MALFORMED, `the body has ${bounds.commandBody + 1} bytes, more than ${bounds.commandBody}`],
    );
  });

  it('the order of checks: the first thing that is wrong is what is said', async () => {
    const wrong = {
      worker: null,
      trustDomain: 'other',
      nodeId: 'node-2',
      generation: 9n,
      expiresAtMs: now - hour,
      kind: 'no.such',
      epoch: 0n,
    } as const;
    const order: [keyof typeof wrong, CommandRejectReason][] = [
      ['worker', R.UNSIGNED],
      ['trustDomain', R.WRONG_TRUST_DOMAIN],
      ['nodeId', R.WRONG_NODE],
      ['generation', R.WRONG_GENERATION],
      ['expiresAtMs', R.EXPIRED],
      ['kind', R.UNSUPPORTED],
      ['epoch', R.STALE_EPOCH],
    ];
    const left: Record<string, unknown> = { ...wrong };
    for (const [name, reason] of order) {
      const command = await commandOf(deployment, left);
      assert.equal(R[Number(rejected(admitCommand(stateWith(), command, now)))], R[reason], name);
      delete left[name];
      if (name === 'kind') left['epoch'] = 0n;
    }
  });

  it('ID-031 KIND-002 a kind of another role, a payload of another kind and one that does not decode are refused', async () => {
    const reboot = await commandOf(deployment, { kind: 'node.reboot', epoch: 3n });
    assert.equal(rejected(admitCommand(stateWith({ role: 'site' }), reboot, now)), R.WRONG_ROLE);
    const other = await commandOf(deployment, { epoch: 3n, body: { kind: 'node.reboot' } });
    assert.equal(rejected(admitCommand(stateWith(), other, now)), R.INVALID_PAYLOAD);
    const broken = await commandOf(deployment, {
      epoch: 3n,
      body: { payload: { typeUrl: 'type.googleapis.com/bettercompute.agent.v1.InventoryRefresh', value: Buffer.from([0xff]) } },
    });
    assert.equal(rejected(admitCommand(stateWith(), broken, now)), R.INVALID_PAYLOAD);
    const none = await commandOf(deployment, { epoch: 3n, body: { payload: undefined } });
    assert.equal(rejected(admitCommand(stateWith(), none, now)), R.INVALID_PAYLOAD);
  });

  it('SIGN-011 SIGN-019 once roots are held, an unsigned command of every kind is refused, destructive or not', async () => {
    for (const kind of Object.keys(commandKinds) as CommandKind[]) {
      const unsigned = await commandOf(deployment, { kind, worker: null, epoch: 3n });
      const [role] = commandKinds[kind].roles;
      assert.equal(R[Number(rejected(admitCommand(stateWith({ role }), unsigned, now)))], R[R.UNSIGNED], kind);
    }
  });

  it('ID-033 a node-tenant takes no destructive command of the platform', async () => {
    const destructive = (Object.keys(commandKinds) as CommandKind[]).filter((kind) => commandKinds[kind].destructive);
    assert.ok(destructive.length > 0);
    for (const kind of destructive) {
      const command = await commandOf(deployment, { kind, epoch: 3n });
      assert.equal(R[Number(rejected(admitCommand(stateWith({ role: 'node-tenant' }), command, now)))], R[R.WRONG_ROLE], kind);
    }
  });

  it('expiry is inclusive, and an instant that is none is malformed', async () => {
    const command = await commandOf(deployment, { epoch: 3n, expiresAtMs: now + minute });
    assert.equal(admitCommand(stateWith(), command, now + minute).kind, 'accept');
    const late = admitCommand(stateWith(), command, now + minute + 1);
    assert.equal(rejected(late), R.EXPIRED);
    const never = await commandOf(deployment, { epoch: 3n, body: { expiresAtMs: 2n ** 63n } });
    assert.equal(rejected(admitCommand(stateWith(), never, now)), R.MALFORMED);
  });

  it('command ids that no log could hold are malformed, and the reject names the log position in their place', async () => {
    for (const id of ['', 'a b', 'x'.repeat(maxCommandIdLength + 1), 'é', 'a\n']) {
      const admission = admitCommand(stateWith(), await commandOf(deployment, { epoch: 3n, seq: 41n, body: { commandId: id } }), now);
      const detail = 'the command id is not 1 to 128 printable characters';
      assert.deepEqual(admission, { kind: 'reject', id: '', seq: 41n, reason: R.MALFORMED, detail }, JSON.stringify(id));
    }
  });

  it('the longest command id that the queue takes is taken, and the journal holds it', async () => {
    const id = 'x'.repeat(maxCommandIdLength);
    const admission = admitCommand(stateWith(), await commandOf(deployment, { epoch: 3n, id }), now);
    assert.deepEqual([admission.kind, admission.kind === 'accept' && admission.command.id], ['accept', id]);
    if (admission.kind !== 'accept') return;
    const { claim: _claim, ...command } = admission.command;
    const record = { type: 'received', command: { ...command, body: new Uint8Array(1) } } as const;
    assert.equal(decodeRecords(Buffer.concat([segmentHeader, encodeRecord(record)])).records.length, 1);
    const longer = { ...record, command: { ...record.command, id: `${id}x` } };
    assert.equal(decodeRecords(Buffer.concat([segmentHeader, encodeRecord(longer)])).records.length, 0);
  });

  describe('what was accepted before', () => {
    it('is a duplicate, also when its time or its signer has run out since: the run is under way and its answer is owed', () => {
      const state = stateWith({ findDigest: () => digestOf(good) });
      for (const at of [now, now + 30 * minute, now + 48 * hour]) assert.equal(admitCommand(state, good, at).kind, 'duplicate');
      const resigned = clone(CommandSchema, good);
      delete resigned.signature;
      assert.equal(admitCommand(state, resigned, now).kind, 'duplicate', 'H-05: the same body under another signature');
    });

    it('is not answered to a gateway that was replaced', () => {
      const stale = clone(CommandSchema, good);
      stale.epoch = 2n;
      assert.equal(rejected(admitCommand(stateWith({ findDigest: () => digestOf(good) }), stale, now)), R.STALE_EPOCH);
    });

    it('with another body is a replay with changed content, once the other body proves to be signed', async () => {
      const state = stateWith({ findDigest: (id) => (id === 'c-1' ? digestOf(good) : undefined) });
      const other = await commandOf(deployment, { id: 'c-1', payload: { sections: ['cpu'] }, epoch: 3n });
      assert.equal(rejected(admitCommand(state, other, now)), R.REPLAY_MISMATCH);
      const forged = await commandOf(deployment, {
        id: 'c-1',
        payload: { sections: ['cpu'] },
        epoch: 3n,
        worker: deployment.foreignWorker,
      });
      assert.equal(rejected(admitCommand(state, forged, now)), R.UNKNOWN_ROOT);
    });
  });

  it('SIGN-018 A-PKI-22 without roots an unsigned command may run, but a signature that is there must verify', async () => {
    const noRoots = stateWith({
      verify: ({ body, signature }, at) => void verifyIntent({ purpose: 'command', body, signature, roots: [], now: at, required: false }),
    });
    assert.equal(admitCommand(noRoots, await commandOf(deployment, { epoch: 3n, worker: null }), now).kind, 'accept');
    assert.equal(rejected(admitCommand(noRoots, good, now)), R.UNKNOWN_ROOT);
  });

  it('SKEW-037 ENV-002 a body with a field of a newer protocol is judged and remembered by its received bytes', async () => {
    const body = Buffer.concat([good.body, Buffer.from([0xc2, 0x3e, 0x01, 0x2a])]);
    const newer = clone(CommandSchema, good);
    Object.assign(newer, { body, signature: await signCommand(deployment.workerA, body) });
    const admission = admitCommand(stateWith(), newer, now);
    assert.deepEqual(admission.kind === 'accept' && [admission.command.digest, admission.command.body], [
      sha256(body).toString('hex'),
      body,
    ]);
  });
});
