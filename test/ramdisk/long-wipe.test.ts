/** disk.wipe in the daemon's own session, journal, renewal and quorum, over a gateway that does what the test says. */
import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { anyUnpack } from '@bufbuild/protobuf/wkt';
import type { DiskHost } from '../../daemon/ramdisk/disks/disk-host.ts';
import { evidenceSigner } from '../../daemon/ramdisk/evidence-signer.ts';
import { createRamdiskHandlers } from '../../daemon/ramdisk/index.ts';
import { hour, minute } from '../../domain/time.ts';
import { parseCsr } from '../../pki/x509/index.ts';
import {
  type Command,
  CommandOutcome,
  CommandRejectReason,
  type CommandResult,
  DiskWipeResultSchema,
  EraseEvidenceSchema,
  RenewRequestSchema,
  RenewResponseSchema,
} from '../../proto/index.ts';
import { quickBackoff } from '../daemon/stage.ts';
import { type Member, startMember } from '../fakes/fleet.ts';
import { batchOf, createApprover, memberOf, quorumOfApprovers } from '../harness/approvers.ts';
import { type CommandInit, commandOf, joinedNode, nodeChain, workerUnder } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeGateway, type FakeSession, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { boot, type RamdiskStage, stageRamdisk } from './stage.ts';

/** A drive that erases itself for as long as the test wants. */
function slowDrive(disks: DiskHost): { readonly disks: DiskHost; readonly runs: string[]; end(): void } {
  const runs: string[] = [];
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const tool: DiskHost['tool'] = async (name, args, signal) => {
    runs.push(`${name} ${args[0]}`);
    await ended;
    return disks.tool(name, args, signal);
  };
  return { disks: { ...disks, tool }, runs, end };
}

describe('a wipe that takes its time', () => {
  let stage: RamdiskStage;
  let gateway: FakeGateway;
  let member: Member;
  let drive: ReturnType<typeof slowDrive>;
  let clock: { ms: number };
  /** How far the control plane's clock is off. */
  let aheadMs: number;
  const approvers = [createApprover(), createApprover()];
  const quorum = quorumOfApprovers({ approvers });

  beforeEach(async () => {
    stage = await stageRamdisk();
    stage.disk('nvme0n1', { serial: 'A', transport: 'nvme', can: ['nvmeFormat'] });
    const { deployment } = stage;
    const startMs = Date.now();
    clock = { ms: startMs };
    aheadMs = 0;
    gateway = await startFakeGateway({
      deployment,
      now: () => clock.ms + aheadMs,
      onRenew: async (bytes) => {
        const { csr } = fromBinary(RenewRequestSchema, bytes);
        const chain = await nodeChain(deployment, {
          nodeId: 'node-1',
          spki: parseCsr(csr).spki,
          now: clock.ms,
          lifetimeMs: 2 * hour,
          role: 'ramdisk',
        });
        return toBinary(RenewResponseSchema, create(RenewResponseSchema, { chain, serverTimeMs: BigInt(clock.ms) }));
      },
    });
    drive = slowDrive(stage.ports.disks);
    const identity = await joinedNode(deployment, { gatewayUrl: gateway.url, role: 'ramdisk', lifetimeMs: 2 * hour, generation: 4n });
    const handlers = createRamdiskHandlers({ ...stage.ports, disks: drive.disks, signer: () => evidenceSigner(member.identity()) });
    member = startMember({
      identity,
      quorum,
      handlers,
      limits: quickBackoff,
      renewal: { lookEveryMs: 5 },
      source: { wallMs: () => clock.ms, steadyMs: () => clock.ms - startMs },
    });
  });
  afterEach(async () => {
    drive.end();
    await member.stop();
    await gateway.close();
  });
  after(removeScratchFolders);

  const batch = (notAfterMs: number) =>
    batchOf(stage.deployment, {
      by: approvers,
      notAfterMs,
      leaves: ['disk.wipe', 'deploy.image'].map((kind) => ({ subject: 'node-1', kind, payloadSha256: new Uint8Array() })),
    });
  /** A command of the run, in the batch as its member of that kind. */
  async function approved(of: Awaited<ReturnType<typeof batch>>, init: CommandInit): Promise<Command> {
    const command = await memberOf(stage.deployment, of, {
      generation: 4n,
      issuedAtMs: clock.ms,
      expiresAtMs: clock.ms + 100 * hour,
      worker: await workerUnder(stage.deployment.rootA, clock.ms),
      payload: { runId: boot.runId, bootNonce: boot.bootNonce },
      ...init,
    });
    const index = of.scope.leaves.findIndex(({ kind }) => kind === init.kind);
    return Object.assign(command, { batchProof: of.proofAt(index) });
  }
  const deliver = (session: FakeSession, command: Command): void =>
    session.send({ frame: { case: 'command', value: { ...command, epoch: BigInt(gateway.sessions.length) } } });
  /** The session after this one, once it is the only one. */
  const changed = (former: FakeSession): Promise<FakeSession> =>
    eventually('another session', () => {
      const open = gateway.sessions.filter(({ isClosed }) => !isClosed);
      return open.length === 1 && open[0] !== former && open[0]?.hello !== undefined ? open[0] : undefined;
    });
  const evidenceOf = ({ payload }: CommandResult) => {
    const { evidence } = payload === undefined ? {} : (anyUnpack(payload, DiskWipeResultSchema) ?? {});
    return fromBinary(EraseEvidenceSchema, evidence?.body ?? new Uint8Array());
  };

  it('MT3 goes on for 30 h through 25 renewals and 10 dropped sessions, past the end of its approval; nothing destructive starts then', async () => {
    const of = await batch(clock.ms + hour);
    const wipe = await approved(of, { id: 'run/wipe.1', kind: 'disk.wipe' });
    const first = await gateway.nextSession();
    deliver(first, wipe);
    await first.take('commandAck');
    await eventually('the drive erases', () => drive.runs.length === 1);
    let drops = 0;
    let session = first;
    for (let renewal = 1; renewal <= 25; renewal += 1) {
      clock.ms += 1.2 * hour;
      await eventually(`renewal ${renewal}`, () => gateway.renewals.length >= renewal);
      session = await changed(session);
      if (drops === 10) continue;
      drops += 1;
      gateway.cut();
      session = await changed(session);
    }
    deliver(session, await approved(of, { id: 'run/deploy.1', kind: 'deploy.image' }));
    const refused = await session.take('commandReject');
    assert.deepEqual([refused.commandId, CommandRejectReason[refused.reason]], ['run/deploy.1', 'BATCH_UNAPPROVED']);
    assert.match(refused.detail, /^approval-expired/);
    drive.end();
    const result = await eventually('its result', () => gateway.sessions.flatMap((one) => one.all('commandResult'))[0]);
    assert.deepEqual([result.commandId, CommandOutcome[result.outcome], result.errorMessage], ['run/wipe.1', 'SUCCEEDED', '']);
    assert.deepEqual([drops, gateway.renewals.length >= 25, drive.runs], [10, true, ['nvme format']]);
    const [disk] = evidenceOf(result).disks;
    assert.ok(disk !== undefined && disk.erased && disk.finishedAtMs - disk.startedAtMs >= BigInt(30 * hour - minute));
  });

  it('MT8 goes on while the control plane’s clock is two hours ahead: approvals end early then, none is used twice, and what is left counts again', async () => {
    const of = await batch(clock.ms + hour);
    const first = await gateway.nextSession();
    deliver(first, await approved(of, { id: 'run/wipe.1', kind: 'disk.wipe' }));
    await first.take('commandAck');
    await eventually('the drive erases', () => drive.runs.length === 1);
    const redialled = async (): Promise<FakeSession> => {
      const open = gateway.sessions.find(({ isClosed }) => !isClosed) ?? first;
      gateway.cut();
      return changed(open);
    };
    const refusalOf = async (session: FakeSession, command: Command): Promise<string> => {
      deliver(session, command);
      const { commandId, reason, detail } = await session.take('commandReject');
      return `${commandId} ${CommandRejectReason[reason]} ${detail.split(':')[0] ?? ''}`;
    };
    aheadMs = 2 * hour;
    const ahead = await redialled();
    assert.equal(
      await refusalOf(ahead, await approved(of, { id: 'run/deploy.1', kind: 'deploy.image' })),
      'run/deploy.1 BATCH_UNAPPROVED approval-expired',
    );
    assert.equal(drive.runs.length, 1);
    aheadMs = 0;
    const back = await redialled();
    assert.equal(
      await refusalOf(back, await approved(of, { id: 'run/wipe.2', kind: 'disk.wipe' })),
      'run/wipe.2 BATCH_UNAPPROVED leaf-used',
    );
    deliver(back, await approved(of, { id: 'run/deploy.2', kind: 'deploy.image' }));
    assert.equal((await back.take('commandAck')).commandId, 'run/deploy.2', 'its approval is in force');
    drive.end();
    const result = await eventually('its result', () =>
      gateway.sessions.flatMap((one) => one.all('commandResult')).find(({ commandId }) => commandId === 'run/wipe.1'),
    );
    assert.deepEqual([CommandOutcome[result.outcome], result.errorMessage, drive.runs], ['SUCCEEDED', '', ['nvme format']]);
  });

  it('MT6 runs a wipe that is delivered again after a failover once, and answers the second from the journal', async () => {
    const wipe = await approved(await batch(clock.ms + hour), { id: 'run/wipe.1', kind: 'disk.wipe' });
    const first = await gateway.nextSession();
    deliver(first, wipe);
    await first.take('commandAck');
    await eventually('the drive erases', () => drive.runs.length === 1);
    gateway.cut();
    const second = await gateway.nextSession();
    deliver(second, wipe);
    await second.take('commandAck');
    drive.end();
    const result = await second.take('commandResult');
    deliver(second, wipe);
    const again = await second.take('commandResult');
    assert.deepEqual(
      [CommandOutcome[result.outcome], CommandOutcome[again.outcome], again.finishedAtMs],
      ['SUCCEEDED', 'SUCCEEDED', result.finishedAtMs],
    );
    assert.deepEqual(drive.runs, ['nvme format']);
  });

  it('M49 uses the approval of a wipe once: a second wipe under it is refused, whether the first succeeded or not', async () => {
    stage.disk('nvme0n1', { serial: 'A', transport: 'nvme', dead: true, can: ['nvmeFormat'] });
    drive.end();
    const of = await batch(clock.ms + hour);
    const session = await gateway.nextSession();
    deliver(session, await approved(of, { id: 'run/wipe.1', kind: 'disk.wipe' }));
    const result = await session.take('commandResult');
    assert.deepEqual([CommandOutcome[result.outcome], result.errorCode], ['FAILED', 'NOT_ERASED']);
    assert.deepEqual(
      evidenceOf(result).disks.map(({ erased }) => erased),
      [false],
      'the evidence of the failure goes along',
    );
    deliver(session, await approved(of, { id: 'run/wipe.2', kind: 'disk.wipe' }));
    const refused = await session.take('commandReject');
    assert.match(`${CommandRejectReason[refused.reason]} ${refused.detail}`, /^BATCH_UNAPPROVED leaf-used/);
  });

  it('M34 refuses what is of another run, of another boot of the run, or of the identity before this boot', async () => {
    drive.end();
    const session = await gateway.nextSession();
    const ask = async (over: CommandInit): Promise<CommandResult> => {
      deliver(session, await commandOf(stage.deployment, { kind: 'diag.disks', generation: 4n, ...over }));
      return session.take('commandResult');
    };
    const payload = { runId: boot.runId, bootNonce: boot.bootNonce };
    const good = await ask({ payload });
    assert.equal(CommandOutcome[good.outcome], 'SUCCEEDED');
    for (const [over, words] of [
      [{ runId: 'ffffffffffff' }, /^the command is of run "ffffffffffff", this boot belongs to run "a1b2c3d4e5f6"$/],
      [{ bootNonce: Buffer.alloc(16, 8) }, /^the command is for boot (08){16} of the run, this is boot (09){16}$/],
      [{ bootNonce: new Uint8Array() }, /^the command is for boot none of the run/],
    ] as const) {
      const refused = await ask({ payload: { ...payload, ...over } });
      assert.deepEqual([CommandOutcome[refused.outcome], refused.errorCode], ['FAILED', 'PERMISSION_DENIED']);
      assert.match(refused.errorMessage, words);
    }
    const of = await batch(clock.ms + hour);
    deliver(session, await approved(of, { id: 'run/wipe.1', kind: 'disk.wipe', payload: { ...payload, runId: 'ffffffffffff' } }));
    assert.equal((await session.take('commandResult')).errorCode, 'PERMISSION_DENIED');
    assert.deepEqual(drive.runs, [], 'no disk was touched');
    deliver(session, await commandOf(stage.deployment, { kind: 'diag.disks', generation: 3n, payload }));
    assert.equal(CommandRejectReason[(await session.take('commandReject')).reason], 'WRONG_GENERATION');
  });
});
