import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import { type AdmissionState, admitCommand } from '../../daemon/agent/admission.ts';
import { Executor, withoutPayload } from '../../daemon/agent/executor.ts';
import { sharedLaneRoom, subjectRoom } from '../../daemon/agent/lanes.ts';
import { type KindContext, type KindHandler, succeeded } from '../../daemon/kinds/handler.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import { Journal } from '../../daemon/state/journal.ts';
import { EarlierAttemptSchema, site } from '../../proto/index.ts';
import { type CommandInit, commandOf, createDeployment, type TestDeployment } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';

const started: Executor[] = [];

/** An executor of a site agent whose bmc.inventory ends when the test says so. */
function siteExecutor(deployment: TestDeployment, power?: KindHandler) {
  const running: string[] = [];
  const ends: string[] = [];
  const gates = new Map<string, () => void>();
  const inventory: KindHandler = {
    run: async (_payload, { commandId, signal }) => {
      running.push(commandId);
      await new Promise<void>((resolve, reject) => {
        gates.set(commandId, resolve);
        signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
      });
      running.splice(running.indexOf(commandId), 1);
      return succeeded(site.BmcInventoryReportSchema, {});
    },
  };
  const storage = { append: async () => undefined, replaceAll: async () => undefined, isLong: () => false, close: async () => undefined };
  const journal = new Journal({ storage, records: [], withoutPayload });
  const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
  const executor = new Executor({
    journal,
    handlers: { 'bmc.inventory': inventory, 'bmc.power': power ?? inventory },
    now: Date.now,
    crash: neverCrash,
    log: silent,
    onFinished: (id) => void ends.push(id),
    onProgress: () => undefined,
    onFatal: (error) => assert.fail(String(error)),
  });
  started.push(executor);
  const admissionState: AdmissionState = {
    nodeId: 'node-1',
    trustDomain: deployment.trustDomain,
    generation: 1n,
    role: 'site',
    epoch: 0n,
    upgradeRequired: false,
    findDigest: () => undefined,
    verify: () => undefined,
    judgeQuorum: () => ({ kind: 'free' }),
  };
  async function admit(
    id: string,
    address: string,
    { kind = 'bmc.inventory', body = {} }: { kind?: string; body?: CommandInit['body'] } = {},
  ) {
    const admission = admitCommand(admissionState, await commandOf(deployment, { id, kind, payload: { address }, body }), Date.now());
    assert.equal(
      admission.kind,
      'accept',
      JSON.stringify(admission, (_key, value) => (typeof value === 'bigint' ? `${value}` : value)),
    );
    if (admission.kind !== 'accept') throw new Error('not admitted');
    return admission.command;
  }
  async function submit(id: string, address: string, kind?: string): Promise<void> {
    const { claim: _claim, ...command } = await admit(id, address, kind === undefined ? {} : { kind });
    await journal.received(command);
    executor.submit(command);
  }
  const end = async (id: string): Promise<void> => {
    gates.get(id)?.();
    await eventually(`${id} has ended`, () => ends.includes(id));
  };
  return { executor, journal, running, ends, admit, submit, end };
}

describe('lanes of a site agent', () => {
  let deployment: TestDeployment;
  before(async () => {
    deployment = await createDeployment();
  });
  // What runs is let go of: the time limit of a kind would hold the process for minutes.
  afterEach(() => Promise.all(started.splice(0).map((executor) => executor.stop(0))));

  it('KIND-002 M14 commands of one controller run one after another, those of others side by side', async () => {
    const { executor, running, submit, end } = siteExecutor(deployment);
    await submit('a-1', 'bmc-a');
    await submit('a-2', 'bmc-a', 'bmc.power');
    await submit('a-3', 'bmc-a');
    await submit('b-1', 'bmc-b');
    await eventually('one of each runs', () => running.length === 2);
    assert.deepEqual(running, ['a-1', 'b-1']);
    assert.equal(executor.running, 2);
    await end('a-1');
    await eventually('the next of a runs', () => running.includes('a-2'));
    assert.deepEqual(running, ['b-1', 'a-2'], 'in the order in which they came, whatever their kind');
    await end('a-2');
    await eventually('the last of a runs', () => running.includes('a-3'));
    await end('a-3');
    await end('b-1');
    assert.equal(executor.running, 0);
  });

  it('M14 a controller that answers nobody fills its own queue and takes no room from others', async () => {
    const { executor, running, admit, submit, ends } = siteExecutor(deployment);
    for (let n = 0; n <= subjectRoom; n += 1) await submit(`a-${n}`, 'bmc-a');
    assert.equal(executor.hasRoom(await admit('a-next', 'bmc-a')), false);
    assert.equal(executor.hasRoom(await admit('b-1', 'bmc-b')), true);
    await eventually('one runs', () => running.length === 1);
    executor.cancel('a-7', 'a test');
    await eventually('what waits is cancelled without its turn', () => ends.includes('a-7'));
    assert.equal(executor.hasRoom(await admit('a-next', 'bmc-a')), true);
    assert.deepEqual(running, ['a-0']);
  });

  it('M14 a site agent holds back what waits beyond the room of its lane', async () => {
    const { executor, admit, submit } = siteExecutor(deployment);
    const queues = sharedLaneRoom / (subjectRoom - 1);
    for (let queue = 0; queue < queues; queue += 1) for (let n = 0; n < subjectRoom; n += 1) await submit(`${queue}-${n}`, `bmc-${queue}`);
    assert.equal(executor.hasRoom(await admit('one-more', 'bmc-x')), false);
  });

  it('MT2 what was asked for before a command, and signed with it, comes to its handler: before the effect, and after a death', async () => {
    const told: string[] = [];
    const say = (when: string, { earlier }: Pick<KindContext, 'earlier'>): void => void told.push(`${when} ${earlier?.commandId}`);
    const handler: KindHandler = {
      prepare: async (_payload, context) => (say('prepare', context), {}),
      run: async (_payload, context) => (say('run', context), succeeded(site.BmcPowerResultSchema, {})),
      recover: async (_payload, context) => (say('recover', context), succeeded(site.BmcPowerResultSchema, {})),
    };
    const { executor, journal, admit, ends } = siteExecutor(deployment, handler);
    const body = { earlier: create(EarlierAttemptSchema, { commandId: 'power.1' }) };
    const { claim: _claim, ...first } = await admit('power.2', 'bmc-a', { kind: 'bmc.power', body });
    await journal.received(first);
    executor.submit(first);
    await eventually('it has ended', () => ends.includes('power.2'));
    const { claim: _other, ...second } = await admit('power.3', 'bmc-a', { kind: 'bmc.power', body });
    await journal.received(second);
    await journal.started('power.3', { atMs: Date.now(), note: {} });
    executor.recover();
    await eventually('it has ended', () => ends.includes('power.3'));
    assert.deepEqual(told, ['prepare power.1', 'run power.1', 'recover power.1']);
  });
});
