import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { leavesPath, openLeavesFile } from '../../daemon/quorum/leaves-file.ts';
import { openUnbatchedFile } from '../../daemon/quorum/unbatched-file.ts';
import { type CrashPoint, neverCrash } from '../../daemon/state/crash-points.ts';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { hour } from '../../domain/time.ts';
import { type Command, CommandOutcome, CommandRejectReason } from '../../proto/index.ts';
import { quorumOfApprovers } from '../harness/approvers.ts';
import { commandOf, createDeployment, joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { type FakeGateway, type FakeSession, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { stopAtStep } from '../harness/stop-at-step.ts';
import { type Bcd, startBcd } from './bcd-process.ts';
import { type Cast, createCast } from './quorum-scenarios.ts';

/** A real bcd, killed between every two steps from the verdict to the effect; then another command asks for the same leaf. */
describe('a daemon that is killed while it uses up an approval', function () {
  this.timeout(120_000);
  let deployment: TestDeployment;
  let cast: Cast;
  const running: { stop(): Promise<unknown> }[] = [];

  before(async () => {
    deployment = await createDeployment();
    cast = createCast(deployment);
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });
  after(removeScratchFolders);

  interface Killed {
    readonly gateway: FakeGateway;
    readonly dataDir: string;
    /** Of the second start. */
    readonly session: FakeSession;
  }

  const run = (dataDir: string, env: NodeJS.ProcessEnv = {}): Bcd => {
    const bcd = startBcd(['run', '--data-dir', dataDir, '--simulate-reboot'], { env });
    running.push({ stop: () => bcd.stop('SIGKILL') });
    return bcd;
  };

  /** In the order of the file, each once. */
  async function commandsKept(dataDir: string): Promise<string[]> {
    const [, ...lines] = (await readFile(leavesPath(dataDir), 'utf8')).trimEnd().split('\n');
    return lines.map((line) => (JSON.parse(line) as { commandId: string }).commandId);
  }

  /** An operation that ran before: where there is a file, the next one is a line more. */
  async function leaveBehind(dataDir: string): Promise<void> {
    const leaves = await openLeavesFile(dataDir, { crash: neverCrash });
    leaves.take({ leaf: 'a'.repeat(64), commandId: 'c-0', digest: 'b'.repeat(64), notAfterMs: Date.now() + hour });
    await leaves.save();
  }

  async function killedAt(point: CrashPoint, command: Command, unbatchedDestructivePerHour = 0): Promise<Killed> {
    const gateway = await startFakeGateway({ deployment });
    running.push({ stop: () => gateway.close() });
    const dataDir = scratchFolder();
    // At its first leaf the file is made, and renamed.
    if (point !== 'claim-unrenamed') await leaveBehind(dataDir);
    const { anna, ben, cleo } = cast;
    const quorum = quorumOfApprovers({ approvers: [anna, ben, cleo], unbatchedDestructivePerHour });
    await saveIdentity(
      dataDir,
      await joinedNode(deployment, { gatewayUrl: gateway.url, trust: { version: 1, roots: [deployment.rootA], quorum } }),
    );
    const first = run(dataDir, { BETTER_COMPUTE_TEST_ONLY: 'yes', BETTER_COMPUTE_TEST_ONLY_CRASH_AT: point });
    (await gateway.nextSession()).send({ frame: { case: 'command', value: command } });
    const end = await first.ended;
    assert.equal(end.signal, 'SIGKILL', `the point ${point} was reached\n${end.stderr}`);
    run(dataDir);
    return { gateway, dataDir, session: await gateway.nextSession() };
  }

  /** The next verdict on this command, in whichever session it comes. */
  async function verdictOn(id: string, { gateway }: Killed): Promise<string> {
    for (;;) {
      for (const { frame } of gateway.sessions.flatMap(({ frames }) => frames)) {
        if (frame.case === 'commandReject' && frame.value.commandId === id)
          return `${CommandRejectReason[frame.value.reason]} ${frame.value.detail.split(':')[0]}`;
        if (frame.case === 'commandAck' && frame.value.commandId === id) return 'accepted';
      }
      await gateway.sessions.at(-1)?.nextFrame();
    }
  }

  async function resultOf(id: string, { gateway }: Killed): Promise<string> {
    for (;;) {
      for (const { frame } of gateway.sessions.flatMap(({ frames }) => frames))
        if (frame.case === 'commandResult' && frame.value.commandId === id) return CommandOutcome[frame.value.outcome];
      const last = gateway.sessions.at(-1);
      if (last?.isClosed === true) await gateway.nextSession();
      else await last?.nextFrame().catch(() => undefined);
    }
  }

  const boots = ({ gateway }: Killed): number => new Set(gateway.sessions.map(({ hello }) => hello?.bootId)).size;

  type Ending = [point: CrashPoint, second: 'accepted' | 'BATCH_UNAPPROVED leaf-used', first: string | null, boots: number];
  const endings: Ending[] = [
    // Nothing was accepted: the leaf is free, and whoever comes next may have it.
    ['before-received', 'accepted', null, 2],
    // From here on the first command has it, whatever the file says, and runs without being sent again.
    ['received-unsynced', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    ['after-received', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    ['before-claim', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    ['claim-unsynced', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    ['claim-unrenamed', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    ['after-claim', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    ['after-ack', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    ['before-started', 'BATCH_UNAPPROVED leaf-used', 'SUCCEEDED', 2],
    // A reboot may have been set off: it is not repeated, by this command or by another.
    ['after-started', 'BATCH_UNAPPROVED leaf-used', 'INTERRUPTED', 1],
  ];
  for (const [point, second, first, expectedBoots] of endings) {
    it(`DMN-012 DMN-016 killed ${point}: the leaf is ${first === null ? 'free' : 'used'}, and the machine reboots ${expectedBoots - 1} time(s)`, async () => {
      const batch = await cast.batch();
      const killed = await killedAt(point, await cast.member(batch, { id: 'c-1', epoch: 1n }));
      const other = await cast.member(batch, { id: 'c-2', epoch: 9n });
      killed.session.send({ frame: { case: 'command', value: other } });
      if (first !== null) assert.equal(await resultOf('c-1', killed), first);
      // A machine that went down with the first one has not heard of it.
      const last = killed.gateway.sessions.at(-1);
      if (last !== killed.session) last?.send({ frame: { case: 'command', value: other } });
      assert.equal(await verdictOn('c-2', killed), second);
      if (second === 'accepted') assert.equal(await resultOf('c-2', killed), 'SUCCEEDED');
      assert.equal(boots(killed), expectedBoots);
      const before = point === 'claim-unrenamed' ? [] : ['c-0'];
      assert.deepEqual(await commandsKept(killed.dataDir), [...before, first === null ? 'c-2' : 'c-1']);
    });
  }

  for (const point of ['before-claim', 'claim-unrenamed', 'after-claim'] as const) {
    it(`DMN-020 killed ${point} outside of a batch: the slot is used, and the next command finds none`, async () => {
      const killed = await killedAt(point, await commandOf(deployment, { id: 'u-1', kind: 'node.reboot' }), 1);
      assert.equal(await resultOf('u-1', killed), 'SUCCEEDED');
      const other = await commandOf(deployment, { id: 'u-2', kind: 'node.reboot', epoch: 9n });
      killed.gateway.sessions.at(-1)?.send({ frame: { case: 'command', value: other } });
      assert.equal(await verdictOn('u-2', killed), 'UNBATCHED_LIMIT unbatched-limit');
    });
  }

  it('a power cut at any step of a file leaves the old content or the new one, never something unreadable', async () => {
    const leaf = (name: string) => ({ leaf: name.repeat(64), commandId: 'c-1', digest: 'b'.repeat(64), notAfterMs: Date.now() + hour });
    const { steps } = await stopAtStep(0, () => useBoth(scratchFolder()));
    assert.ok(steps >= 15, `${steps} steps`);
    for (let at = 1; at <= steps; at += 1) {
      const folder = scratchFolder();
      await stopAtStep(at, () => useBoth(folder));
      const { leaves, slots } = await open(folder);
      assert.deepEqual([leaves.unreadable, slots.unreadable], [null, null], `step ${at}`);
      assert.ok(leaves.size <= 2 && slots.within(Date.now()).length <= 1, `step ${at}`);
    }

    async function open(folder: string) {
      return { leaves: await openLeavesFile(folder, { crash: neverCrash }), slots: await openUnbatchedFile(folder, { crash: neverCrash }) };
    }
    async function useBoth(folder: string): Promise<void> {
      const { leaves, slots } = await open(folder);
      // The first makes the file, the second is appended, the third time the file is written anew.
      for (const name of ['a', 'c']) {
        leaves.take(leaf(name));
        await leaves.save();
      }
      await leaves.prune(Date.now() + 2 * hour);
      slots.take({ commandId: 'u-1', digest: 'c'.repeat(64), atMs: Date.now() }, 1);
      await slots.save();
    }
  });
});
