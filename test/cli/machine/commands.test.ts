/** Second table: options and a real server's answers → output, exactly. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fleetReimageRun } from '../../../cli/commands/fleet/reimage.ts';
import { machineAddRun } from '../../../cli/commands/machine/add.ts';
import { machineImportRun } from '../../../cli/commands/machine/import.ts';
import { machineListRun } from '../../../cli/commands/machine/list.ts';
import { machineBeginRun } from '../../../cli/commands/machine/runs.ts';
import { machineShowRun } from '../../../cli/commands/machine/show.ts';
import { machineSayRun } from '../../../cli/commands/machine/steer.ts';
import { siteListRun, siteShowRun } from '../../../cli/commands/site/sites.ts';
import { ControlError } from '../../../domain/errors.ts';
import { aMachine, aMetalRun, aWipedMachine } from '../../api/machine-support.ts';
import { createDeployment, type FakeDeployment, now, type RunningApi, startApi } from '../../api/support.ts';
import { profileYaml } from '../../harness/profile.ts';
import { removeScratchFolders, scratchFolder } from '../../harness/scratch.ts';
import { createTestIo, createTestPorts, envFor, type TestIo, type TestIoOptions } from '../support.ts';

describe('commands about machines', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;
  let folder: string;
  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };

  before(() => void (folder = scratchFolder()));
  beforeEach(async () => {
    deployment = createDeployment();
    api = await startApi(deployment);
  });
  afterEach(() => api.close());
  after(removeScratchFolders);

  const set = (options: TestIoOptions = {}): { io: TestIo; ports: ReturnType<typeof createTestPorts> } => {
    const io = createTestIo({ env: envFor(api.url), ...options });
    return { io, ports: createTestPorts(io) };
  };
  const refusal = (code: string, message: RegExp) => (error: ControlError) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  };
  const words = { json: false, machine: 'gpu-0117', actor: 'ann', reason: 'ticket' };
  const show = { json: false, machine: 'gpu-0117', timeline: false, run: null, watch: false, intervalMs: 2_000 };

  it('machine list shows one line a machine, and how the first one comes', async () => {
    const none = set();
    await machineListRun({ json: false, state: null, site: null, limit: 10, after: '' }, none.ports);
    assert.deepEqual(
      [none.io.stdout(), none.io.stderr()],
      ['', 'no machine; add one with: better-compute machine add, or a list of them with: better-compute machine import\n'],
    );
    deployment.metal.machines = [
      aWipedMachine().machine,
      aMachine('gpu-0118', { rack: '', profileName: 'gpu-worker' }),
      aMachine('gpu-0119'),
    ];
    const { io, ports } = set();
    await machineListRun({ json: false, state: null, site: null, limit: 2, after: '' }, ports);
    assert.equal(
      io.stdout(),
      `MACHINE   SITE   RACK  STATE         SINCE           POWER  PROFILE     RUN
gpu-0117  hel-1  r7    provisioning  10 min 0 s ago  on     -           provision: wipe
gpu-0118  hel-1  -     available     1 h 0 min ago   off    gpu-worker  -
`,
    );
    assert.equal(io.stderr(), 'there are more: --after gpu-0118\n');
    const json = set();
    await machineListRun({ json: true, state: 'available', site: 'hel-1', limit: 10, after: '' }, json.ports);
    assert.deepEqual(
      (json.io.json() as { machines: { id: string }[] }).machines.map(({ id }) => id),
      ['gpu-0118', 'gpu-0119'],
    );
  });

  it('M59 machine show names what it shares with others, and who they are as far as the caller sees them', async () => {
    const shared = [
      { value: 'serial:CHASSIS-9', others: ['gpu-0118'], hidden: 0 },
      { value: 'mac:b8:3f:d2:aa:00:20', others: [], hidden: 2 },
    ];
    deployment.metal.machines = [{ ...aMachine('gpu-0117'), shared }];
    const { io, ports } = set();
    await machineShowRun(show, ports);
    assert.match(io.stdout(), /^shared +serial CHASSIS-9 is also said by gpu-0118: it tells neither apart$/m);
    assert.match(io.stdout(), /^shared +mac b8:3f:d2:aa:00:20 is also said by 2 that you do not see: it tells neither apart$/m);
  });

  it('machine show tells who it is, how far it is, what it waits for and what helps', async () => {
    deployment.metal.machines = [aWipedMachine().machine];
    const { io, ports } = set();
    await machineShowRun(show, ports);
    assert.equal(
      io.stdout(),
      `machine      gpu-0117 (site hel-1, rack r7, tenant default)
state        provisioning for 10 min 0 s
hardware     Dell Inc. PowerEdge R750, 64 processor(s), 550 GB
controller   10.7.0.17, key abababababab
power        on, seen 1 min 0 s ago
profile      none
seen         never
disk         1.92 TB, nvme, PM1733, serial S6CKNT0W, wwn eui.36434b3052b00001, as nvme0n1
run          0c4f5a6b7d8e, provision since 10 min 0 s ago, batch b-7f3a
step         wipe, since 4 min 0 s ago
progress     disk.wipe 480 GB of 1.92 TB (24 %), 2.00 GB/s, 11 min 59 s left: overwriting nvme0n1
waits for    gpu-0117 to finish disk.wipe, until 2030-01-01T13:00:00Z
last answer  done, 4 min 10 s ago
helps        better-compute machine show gpu-0117 --watch
`,
    );
    await assert.rejects(machineShowRun({ ...show, machine: 'nobody' }, ports), refusal('NOT_FOUND', /^no machine is called nobody$/));
  });

  it('machine show --timeline tells the phases in time, the commands with their answers, the evidence', async () => {
    const { machine, run } = aWipedMachine();
    deployment.metal.machines = [machine];
    const evidence = [{ id: 'e-1', kind: 'erase' as const, commandId: 'x', complete: false, finishedAt: now - 5_000 }];
    deployment.metal.runs = [{ ...run, evidence }, aMetalRun('aaaaaaaaaaaa', { machineId: 'another' })];
    const { io, ports } = set();
    await machineShowRun({ ...show, timeline: true }, ports);
    assert.equal(
      io.stdout(),
      `run 0c4f5a6b7d8e: provision of gpu-0117, open
  asked for by ann at 2030-01-01T11:50:00Z: new tenant

AT                    STEP      STATE    TOOK              DETAIL
2030-01-01T11:50:00Z  approve   done     2 min 0 s         2 of 2 approvals
2030-01-01T11:52:00Z  boot      failed   1 min 0 s         the controller did not answer
2030-01-01T11:53:00Z  boot (2)  done     2 min 0 s         -
2030-01-01T11:56:00Z  wipe      started  4 min 0 s so far  -

COMMAND    ON        STATE   TOOK              ANSWER
bmc.power  agent-1   failed  50 s              UNAVAILABLE: the controller at 10.7.0.17 does not answer
disk.wipe  gpu-0117  acked   4 min 0 s so far  480 GB of 1.92 TB (24 %), 2.00 GB/s, 11 min 59 s left: overwriting nvme0n1

EVIDENCE  OF     AT                    SAYS
e-1       erase  2030-01-01T11:59:55Z  NOT complete
`,
    );
    await assert.rejects(
      machineShowRun({ ...show, timeline: true, run: 'aaaaaaaaaaaa' }, ports),
      refusal('NOT_FOUND', /^run aaaaaaaaaaaa is none of gpu-0117$/),
    );
    deployment.metal.machines = [aMachine('gpu-0117')];
    const idle = set();
    await machineShowRun({ ...show, timeline: true }, idle.ports);
    assert.deepEqual([idle.io.stdout(), idle.io.stderr()], ['', 'nothing has run on gpu-0117\n']);
  });

  it('machine show --watch prints a line for each change, lives through an outage, and ends as the run ends', async () => {
    const { machine, run } = aWipedMachine();
    deployment.metal.machines = [machine];
    let isAway = false;
    const steps: (() => void)[] = [
      () => undefined,
      () => void (isAway = true),
      () => void (isAway = false),
      () => {
        const [working] = machine.working;
        assert.ok(working !== undefined && machine.run !== null);
        deployment.metal.machines = [{ ...machine, working: [{ ...working, progress: { ...working.progress, done: 960_000_000_000 } }] }];
      },
      () => {
        assert.ok(machine.run !== null && machine.live !== null);
        const waiting = { ...machine.live, waitsFor: 'the system of gpu-0117 to join' };
        deployment.metal.machines = [{ ...machine, run: { ...machine.run, step: 'provisioned-join' }, working: [], live: waiting }];
      },
      () => {
        const ended = { ...run, state: 'failed' as const, remains: 'dirty' as const, endReason: 'no-join' };
        deployment.metal.machines = [{ ...machine, state: 'quarantined', run: null, working: [], live: null, runs: [ended] }];
      },
    ];
    const { io, ports } = set({ onSleep: () => steps.shift()?.() });
    const away = new ControlError('UNAVAILABLE', 'the operator API does not answer');
    const machines: typeof ports.machines = () => ({ ...ports.machines(), ...(isAway ? { get: () => Promise.reject(away) } : {}) });
    await assert.rejects(
      machineShowRun({ ...show, watch: true }, { ...ports, machines }),
      refusal('INVALID_STATE', /^the provision run of gpu-0117 failed \(no-join\): its disks are dirty: in quarantine$/),
    );
    assert.equal(
      io.stdout(),
      `2030-01-01T12:00:00Z  provision wipe; disk.wipe 480 GB of 1.92 TB (24 %), 2.00 GB/s, 11 min 59 s left: overwriting nvme0n1
2030-01-01T12:00:00Z  the api does not answer; trying again
2030-01-01T12:00:00Z  provision wipe; disk.wipe 480 GB of 1.92 TB (24 %), 2.00 GB/s, 11 min 59 s left: overwriting nvme0n1
2030-01-01T12:00:00Z  provision wipe; disk.wipe 960 GB of 1.92 TB (49 %), 4.00 GB/s, 3 min 59 s left: overwriting nvme0n1
2030-01-01T12:00:00Z  provision provisioned-join; waits for the system of gpu-0117 to join
2030-01-01T12:00:00Z  quarantined
`,
    );
    assert.ok(io.slept.every((ms) => ms === 2_000));
  });

  it('machine add, and what comes next', async () => {
    const { io, ports } = set();
    const machine = { id: 'gpu-0117', siteId: 'hel-1', bmcAddress: '10.7.0.17' };
    await machineAddRun({ json: false, actor: 'ann', machine }, ports);
    assert.equal(io.stdout(), 'added gpu-0117\n');
    assert.match(io.stderr(), /secret:\/\/bmc\/gpu-0117 \(better-compute secrets set\)/);
    assert.deepEqual(deployment.metal.asked, [['add', { machine, actor: 'ann' }]]);
  });

  it('machine import says line and field of everything that is wrong, before anything is asked for', async () => {
    const { io, ports } = set();
    const importing = { json: false, format: null, dryRun: false, actor: 'ann' };
    const bad = file('bad.csv', 'id,site,rack,bmc,colour\nm 1,hel-1,r1,10.0.0.1,red\nm-2,hel-1,r1,https://x/,blue\n');
    await assert.rejects(
      machineImportRun({ ...importing, path: bad }, ports),
      refusal('INVALID_INPUT', /bad\.csv cannot be taken, and nothing of it was:\nline 1, colour: /),
    );
    const yaml = file('bad.yaml', 'machines:\n  - id: m-1\n    site: hel-1\n    bmc: 10.0.0.1\n    mac: aa\n');
    await assert.rejects(machineImportRun({ ...importing, path: yaml }, ports), refusal('INVALID_INPUT', /\nline \d, .*mac/));
    const binary = join(folder, 'binary.csv');
    writeFileSync(binary, Buffer.from([0xff, 0xfe, 0x00]));
    await assert.rejects(machineImportRun({ ...importing, path: binary }, ports), refusal('INVALID_INPUT', /is no text in UTF-8$/));
    await assert.rejects(
      machineImportRun({ ...importing, path: join(folder, 'none.csv') }, ports),
      refusal('NOT_FOUND', /cannot be read$/),
    );
    await assert.rejects(
      machineImportRun({ ...importing, path: file('list.txt', 'x') }, ports),
      refusal('INVALID_INPUT', /does not say by its name/),
    );
    assert.deepEqual(deployment.metal.asked, []);
    const good = file('good.csv', 'id,site,bmc\nm-1,hel-1,10.0.0.1\nm-2,hel-1,10.0.0.2\n');
    await machineImportRun({ ...importing, path: good, dryRun: true }, ports);
    await machineImportRun({ ...importing, path: good }, ports);
    assert.equal(io.stdout(), '2 machine(s) could be added; nothing was\nadded 2 machine(s)\n');
  });

  it('machine provision reads the profile before it asks anybody, and starts nothing without a yes', async () => {
    deployment.metal.machines = [aMachine('gpu-0117')];
    const profile = file('worker.yaml', profileYaml);
    const broken = file('broken.yaml', profileYaml.replace('samples: 64', 'samples: none'));
    await assert.rejects(
      machineBeginRun('provision', { ...words, yes: true, profile: broken }, set().ports),
      refusal('INVALID_INPUT', /broken\.yaml cannot be used:\nline 7, wipe\.samples: /),
    );
    await assert.rejects(
      machineBeginRun('provision', { ...words, yes: false, profile }, set().ports),
      refusal('INVALID_INPUT', /^this needs --yes where nobody can be asked: Wipe every disk of gpu-0117 and write it anew\?$/),
    );
    await assert.rejects(
      machineBeginRun('provision', { ...words, yes: false, profile }, set({ answers: [false] }).ports),
      refusal('CANCELLED', /^nothing was changed$/),
    );
    assert.equal(deployment.metal.asked.length, 0);
    const { io, ports } = set({ answers: [true] });
    await machineBeginRun('provision', { ...words, yes: false, profile }, ports);
    assert.equal(io.stdout(), 'provisioning gpu-0117: workflow machine/gpu-0117/provision\n');
    assert.equal(io.stderr(), 'follow it with: better-compute machine show gpu-0117 --watch\n');
    await machineBeginRun('inspect', { ...words, yes: false }, ports);
    await machineBeginRun('retire', { ...words, yes: true }, ports);
    assert.deepEqual(
      deployment.metal.asked.map(([, given]) => (given as { kind: string }).kind),
      ['provision', 'inspect', 'retire'],
    );
  });

  it('M24 machine cancel, override, give-up, forget and readmit: who, why, and what came of it', async () => {
    deployment.metal.machines = [aMachine('gpu-0117', { state: 'quarantined' })];
    const say = async (what: Parameters<typeof machineSayRun>[0], more: object = {}): Promise<string> => {
      const { io, ports } = set();
      await machineSayRun(what, { ...words, yes: true, ...more }, ports);
      return io.stdout();
    };
    assert.equal(await say('cancel'), 'cancelled the run of gpu-0117; it is at wipe and waits for the wipe to end\n');
    deployment.metal.steered = { ...deployment.metal.steered, told: 'waits', step: 'boot', waitsFor: '' };
    assert.equal(
      await say('override', { step: 'boot' }),
      'overrode a step of gpu-0117; no worker answers: it counts as soon as one does; it is at boot\n',
    );
    deployment.metal.steered = { ...deployment.metal.steered, told: 'ended', end: 'failed', remains: 'dirty' };
    assert.equal(
      await say('give-up'),
      'gave up the run of gpu-0117; nothing ran any more: the run has been ended here; it has ended as failed: its disks are dirty: in quarantine\n',
    );
    assert.equal(await say('override'), 'gpu-0117 is available\n');
    assert.equal(await say('forget'), 'gpu-0117 is deleted; its hardware is kept out until: better-compute machine readmit\n');
    assert.equal(await say('readmit'), 'gpu-0117 is quarantined\n');
    assert.deepEqual(
      deployment.metal.asked.map(([, given]) => given),
      [
        { id: 'gpu-0117', what: 'cancel', actor: 'ann', reason: 'ticket' },
        { id: 'gpu-0117', what: 'override', step: 'boot', actor: 'ann', reason: 'ticket' },
        { id: 'gpu-0117', what: 'give-up', actor: 'ann', reason: 'ticket' },
        { id: 'gpu-0117', what: 'release', actor: 'ann', reason: 'ticket' },
        { id: 'gpu-0117', what: 'forget', actor: 'ann', reason: 'ticket' },
        { id: 'gpu-0117', what: 'readmit', actor: 'ann', reason: 'ticket' },
      ],
    );
    deployment.metal.refuses = new ControlError('INVALID_STATE', 'step boot does not wait', { details: { reason: 'other-step' } });
    await assert.rejects(
      machineSayRun('override', { ...words, step: 'boot', yes: true }, set().ports),
      refusal('INVALID_STATE', /^step boot does not wait$/),
    );
    await assert.rejects(machineSayRun('cancel', { ...words, yes: false }, set().ports), refusal('INVALID_INPUT', /needs --yes/));
  });

  it('site list and site show name the agents, and say when there is none', async () => {
    deployment.metal.sites = [
      {
        siteId: 'hel-1',
        agents: [
          { nodeId: 'agent-1', connected: true, lastSeenAt: now - 1_000 },
          { nodeId: 'agent-2', connected: false, lastSeenAt: now - 600_000 },
        ],
        states: { available: 3, provisioned: 9 },
        racks: [{ rack: 'r7', machines: 12 }],
        openRuns: 1,
      },
      { siteId: 'osl-2', agents: [], states: {}, racks: [], openRuns: 0 },
    ];
    const { io, ports } = set();
    await siteListRun({ json: false }, ports);
    await siteShowRun({ json: false, site: 'hel-1' }, ports);
    await siteShowRun({ json: false, site: 'osl-2' }, ports);
    assert.equal(
      io.stdout(),
      `SITE   AGENTS            MACHINES  RUNS  STATES
hel-1  1 of 2 connected  12        1     3 available, 9 provisioned
osl-2  0 of 0 connected  0         0     -
site       hel-1
agent      agent-1, connected
agent      agent-2, not connected, seen 10 min 0 s ago
machines   3 available, 9 provisioned
rack       r7: 12 machine(s)
open runs  1
site       osl-2
agent      none: its machines can be reached by nobody
machines   -
open runs  0
`,
    );
  });

  it('fleet reimage takes ids, or what a site can give, and never both', async () => {
    const profile = file('worker.yaml', profileYaml);
    const options = { ...words, machines: [], site: 'hel-1', profile, run: 'spring', limits: { perRack: 2 }, stop: {}, yes: true };
    await assert.rejects(
      fleetReimageRun(options, set().ports),
      refusal('NOT_FOUND', /^no machine of site hel-1 is available or provisioned$/),
    );
    await assert.rejects(fleetReimageRun({ ...options, machines: ['a'] }, set().ports), refusal('INVALID_INPUT', /exclude each other$/));
    await assert.rejects(fleetReimageRun({ ...options, site: null }, set().ports), refusal('INVALID_INPUT', /^no machine is named/));
    deployment.metal.machines = [
      aMachine('a'),
      aMachine('b', { state: 'provisioned' }),
      aMachine('c', { state: 'quarantined' }),
      aMachine('d', { siteId: 'osl-2' }),
    ];
    const { io, ports } = set();
    await fleetReimageRun(options, ports);
    assert.equal(io.stdout(), 'reimaging 2 machine(s): workflow fleet/spring/reimage\n');
    const asked = deployment.metal.asked[0]?.[1] as { machines: string[]; limits: unknown; profile: { name: string } };
    assert.deepEqual([asked.machines, asked.limits, asked.profile.name], [['a', 'b'], { perRack: 2 }, 'gpu-worker']);
  });

  it('BAT-056 writes what a controller said as text: nothing of it moves a cursor', async () => {
    const evil = 'failed\u001b[2J\u202egnp';
    const { machine, run } = aWipedMachine();
    const live = machine.live && { ...machine.live, waitsFor: evil, last: { commandId: 'x', state: 'failed', message: evil, at: now } };
    deployment.metal.machines = [{ ...machine, model: evil, stateReason: evil, live }];
    deployment.metal.runs = [{ ...run, reason: evil, steps: run.steps.map((step) => ({ ...step, detail: evil })) }];
    const { io, ports } = set();
    for (const timeline of [false, true]) await machineShowRun({ ...show, timeline }, ports);
    await machineListRun({ json: false, state: null, site: null, limit: 10, after: '' }, ports);
    assert.doesNotMatch(io.stdout(), /(?!\n)\p{Cc}|\p{Cf}/u);
    assert.match(io.stdout(), /failed\\u\{1b\}\[2J\\u\{202e\}gnp/);
  });
});
