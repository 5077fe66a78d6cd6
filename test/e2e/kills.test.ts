/**
 * Every process of the system is killed, in phases of a rotation and under work that can tell whether an effect happened twice. Short
 * here; `npm run test:nightly` (BC_TEST_NIGHTLY=1) goes on with rotations until at least 30 kills are survived.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readBundlePins } from '../../cli/bundle-pins.ts';
import { fetchEvidence } from '../../cli/commands/rotation/evidence.ts';
import { verifyRotationEvidence } from '../../pki/audit/verify-evidence.ts';
import { readPublicBundle } from '../../pki/bundle/index.ts';
import { readAuditEvents } from '../../services/audit.ts';
import { type Phase, phases } from '../../workflows/rotate-command-root/messages.ts';
import { eventually } from '../harness/eventually.ts';
import { everyVictim, type LiveStack, startLiveStack, type Victim } from '../harness/live-stack.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { failuresOf, type SteadyWork, startSteadyWork, tally, type WorkDone } from '../harness/steady-work.ts';

const nightly = process.env['BC_TEST_NIGHTLY'] === '1';
// A worker key has two fifths of its life left at its last use: longer than a kill keeps a command from its machine.
const times = { overlapMs: 10_000, marginMs: 1_000, workerLifetimeMs: nightly ? 90_000 : 45_000 };
const nodes = ['node-1', 'node-2'];
/** Does no work: it is stopped to keep the gate of the fleet closed. */
const held = 'node-3';
type Target = Victim | 'bcd';
const targets: readonly Target[] = ['signing', 'gateway', 'bcd', 'api', 'control', 'temporal', 'postgres'];
/** For a hang, on a machine that does much else. */
const patienceMs = 120_000;
const wanted = nightly ? 30 : targets.length;

describe('processes that are killed during a rotation', function () {
  this.timeout(nightly ? 60 * 60_000 : 420_000);
  let stack: LiveStack;
  let work: SteadyWork | undefined;

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    stack = await startLiveStack(times);
    for (const name of [...nodes, held]) await stack.daemon(name).start();
  });
  after(async () => {
    await work?.stop();
    await stack?.stop();
    removeScratchFolders();
  });

  it('ROT-001 H-02 H-03 H-17 KIND-015 the rotation ends, nothing is rejected, no effect happens twice, the evidence holds', async () => {
    work = startSteadyWork(stack.client, { nodes });
    const killed: string[] = [];
    for (let round = 0; killed.length < wanted; round += 1) {
      const order = [...targets.slice(round % targets.length), ...targets.slice(0, round % targets.length)];
      const { done } = work;
      killed.push(...(await rotateUnderKills(order, done)));
    }
    const done = await work.finish();
    const restarts = killed.filter((line) => line.startsWith('bcd')).length;
    judgeWork(done, restarts);
    assert.ok(killed.length >= wanted, killed.join(', '));
  });

  /**
   * One rotation in three stretches: held at its beginning by a pause, at the gate of the fleet by a daemon that is stopped, and while
   * it waits for the drop. A gateway that is killed meanwhile lets the stopped daemon go, so the middle stretch may be over before its
   * kills are: the phase that is met is told. @returns what was killed, and where
   */
  async function rotateUnderKills(order: readonly Target[], done: () => readonly WorkDone[]): Promise<string[]> {
    const killed: string[] = [];
    const generation = bundleNow().generation;
    const auditedBefore = (await readAuditEvents(stack.db, { afterSeq: 0, limit: 10_000 })).at(-1)?.seq ?? 0;
    const strike = async (atLeast: Phase, some: readonly Target[]): Promise<void> => {
      for (const target of some) {
        const phase = await untilPhase(atLeast);
        const worked = done().length;
        await kill(target);
        killed.push(`${target} at ${phase}`);
        // Something is done before the next kill, so that each of them meets a system at work.
        await eventually(`work after the kill of ${target}`, () => done().length > worked, patienceMs);
      }
    };
    await stack.rotation.start({ actor: 'test', reason: 'under kills' });
    await patiently('a pause', () => stack.rotation.pause({ actor: 'test', reason: 'kills at the beginning' }));
    await strike('planning', order.slice(0, 2));
    stack.daemon(held).signal('SIGSTOP');
    await patiently('a resume', () => stack.rotation.resume({ actor: 'test' }));
    await strike('waiting-fleet', order.slice(2, 4));
    stack.daemon(held).signal('SIGCONT');
    await strike('waiting-drop', order.slice(4));
    const end = await eventually('the end of the rotation', ended, patienceMs);
    assert.equal(end.state, 'completed', end.failure ?? '');
    assert.equal(end.result?.outcome, 'dropped');
    await judgeRotation(end.result?.rotationId ?? '', { generation, auditedBefore });
    return killed;
  }

  const bundleNow = () => readPublicBundle(readFileSync(join(stack.home, 'pki.json'), 'utf8'));
  const patiently = (what: string, call: () => Promise<void>): Promise<true> =>
    eventually(
      what,
      () =>
        call().then(
          () => true as const,
          () => false as const,
        ),
      patienceMs,
    );

  async function kill(target: Target): Promise<void> {
    if (target !== 'bcd') return stack.kill(target);
    const daemon = stack.daemon('node-1');
    await daemon.kill();
    await daemon.start();
  }

  const look = () => stack.rotation.find().catch(() => null);
  const untilPhase = (atLeast: Phase): Promise<string> =>
    eventually(
      `the phase ${atLeast} or a later one`,
      async () => {
        const phase = (await look())?.status?.phase;
        return phase !== undefined && phases.indexOf(phase) >= phases.indexOf(atLeast) && phase;
      },
      patienceMs,
    );
  async function ended() {
    const run = await look();
    return run !== null && run.state !== 'running' && run;
  }

  /** Each step once, in the audit and in the bundle, and signed evidence of it. */
  async function judgeRotation(
    rotationId: string,
    { generation, auditedBefore }: { generation: number; auditedBefore: number },
  ): Promise<void> {
    const stages = (await readAuditEvents(stack.db, { afterSeq: auditedBefore, limit: 1_000 })).map((event) => event.action);
    assert.deepEqual(
      stages.filter((action) => action.startsWith('rotation.stage.')),
      ['plan', 'add', 'processes', 'fleet', 'switch', 'resign', 'drop', 'confirm'].map((stage) => `rotation.stage.${stage}`),
    );
    assert.equal(bundleNow().generation - generation, 3, 'add, switch and drop each wrote the bundle once');
    const { file } = await fetchEvidence(stack.api, rotationId);
    const pin = readBundlePins(join(stack.home, 'pki.json'), stack.secret()).audit;
    const verdict = verifyRotationEvidence(file.documents, { auditKey: file.auditKey, pin, minOverlapMs: times.overlapMs });
    assert.deepEqual(verdict.problems, []);
  }

  /** What a killed daemon had begun and cannot prove is told as interrupted and not repeated; everything else is done, once. */
  function judgeWork(done: readonly WorkDone[], restarts: number): void {
    const { done: succeeded = 0, interrupted = 0, ...rest } = tally(done);
    assert.deepEqual(rest, {}, failuresOf(done).join('\n'));
    assert.equal(succeeded + interrupted, done.length * nodes.length);
    assert.ok(interrupted <= restarts, failuresOf(done).join('\n'));
    for (const name of nodes) {
      const effects = stack.daemon(name).effects();
      assert.deepEqual(effects, [...new Set(effects)], `${name}: a unit was restarted twice`);
      assert.ok(effects.length >= done.length - interrupted, `${name}: ${effects.length} of ${done.length}`);
    }
  }

  it('knows every process of the stack', () => {
    assert.deepEqual([...targets].filter((target) => target !== 'bcd').sort(), [...everyVictim].sort());
  });
});
