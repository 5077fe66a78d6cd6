import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { harmOf } from '../../../domain/commands/harm.ts';
import { findCommandKind } from '../../../domain/commands/kinds.ts';
import { actionsFor, powerPlan } from '../../../domain/metal/plan.ts';
import { networkBoots, problemsOfProfile, profileCommandKinds, worstBootCycleMs } from '../../../domain/metal/profile.ts';
import { ownStepsOf, type ProfileStep, type StepDoing, stepKinds } from '../../../domain/metal/profile-steps.ts';
import { provisionStepNames, runSteps, stepsOf } from '../../../domain/metal/steps.ts';
import { minute } from '../../../domain/time.ts';
import { protocolRegistry } from '../../../proto/index.ts';
import { stepPayload } from '../../../services/metal/step-payloads.ts';
import { goodProfile, invokeStep, requestStep } from './profiles.ts';

const problemsOf = (steps: readonly ProfileStep[]): string[] =>
  problemsOfProfile(goodProfile({ steps }), provisionStepNames).map(({ path, message }) => `${path.join('.')}: ${message}`);

const powers = (graceful: boolean) =>
  powerPlan('provision', { graceful }).flatMap((one) => (one.kind === 'bmc.power' ? [`${one.ordinal} ${one.action}`] : []));

describe('power plan', () => {
  it('numbers every power action and boot setting that a run may need, and has one bounded re-boot', () => {
    assert.deepEqual(powers(false), ['1 cycle', '2 cycle', '3 cycle', '4 off-hard']);
    const boots = powerPlan('provision').flatMap((one) => (one.kind === 'bmc.boot' ? [`${one.ordinal} ${one.target}`] : []));
    assert.deepEqual(boots, ['1 network', '2 network', '3 disk']);
    assert.equal(actionsFor(powerPlan('provision'), 'network-boot-again').length, 2);
    assert.deepEqual([powerPlan('inspect'), powerPlan('rotate-bmc')], [[], []]);
  });

  it('M32 a graceful profile asks the operating system before the power goes', () => {
    assert.deepEqual(powers(true).slice(0, 2), ['1 off-soft', '2 on']);
  });

  it('boots over HTTP where the profile says from where', () => {
    const targets = powerPlan('retire', { httpUrl: 'http://boot.example/x.efi' }).flatMap((one) =>
      one.kind === 'bmc.boot' ? [one.target] : [],
    );
    assert.deepEqual(targets, ['http', 'http']);
  });
});

describe('profile', () => {
  it('M10 refuses a discovery window that its boots at their worst would outlast', () => {
    const profile = goodProfile();
    const least = networkBoots * worstBootCycleMs(profile);
    assert.equal(least, 2 * (5 + 5 + 10) * minute);
    const withWindow = (discoveryWindowMs: number) =>
      problemsOfProfile({ ...profile, boot: { ...profile.boot, discoveryWindowMs } }, provisionStepNames);
    assert.deepEqual(withWindow(least + 1), []);
    const [problem] = withWindow(least);
    assert.deepEqual(problem?.path, ['boot', 'discoveryWindow']);
    assert.match(problem?.message ?? '', /^40 min are not more than 40 min: 2 boots of at worst 20 min each/);
  });

  it('BAT-035 the kinds of a run are those that its steps send, each once, in their order', () => {
    assert.deepEqual(profileCommandKinds(goodProfile(), stepsOf.provision), [
      'boot.prepareRamdisk',
      'bmc.boot',
      'bmc.power',
      'diag.disks',
      'disk.wipe',
      'deploy.image',
      'boot.kexec',
      'boot.cleanUp',
    ]);
    const withDcgm = goodProfile({ diagnose: { dcgm: { level: 2, required: true } } });
    assert.ok(profileCommandKinds(withDcgm, stepsOf.provision).includes('diag.dcgm'));
  });

  it('BAT-035 BAT-036 a profile’s own step adds what it declares, and BAT-037 nothing when it declares nothing', () => {
    const withStep = (sends?: string[]) => goodProfile({ steps: [requestStep({ sends })] });
    assert.ok(profileCommandKinds(withStep(['site.httpProxy']), stepsOf.provision).includes('site.httpProxy'));
    assert.deepEqual(profileCommandKinds(withStep(), stepsOf.provision), profileCommandKinds(goodProfile(), stepsOf.provision));
  });

  it('names every step that cannot be, and every kind that does not exist', () => {
    const problems = problemsOf([
      requestStep({ name: 'wipe', after: 'deploy' }),
      requestStep({ name: 'x', after: 'nowhere', sends: ['disk.shred'] }, { body: 'x' }),
      requestStep({ name: 'power-off', sends: ['site.httpProxy', 'node.reboot'] }, { body: 'y' }),
      requestStep({ name: 'nothing', do: {} }),
      requestStep({ name: 'two', do: { 'service.restart': { unit: 'a.service' }, 'node.reboot': { reason: 'x' } } }),
    ]);
    assert.deepEqual(
      problems.map((one) => one.replace(/there are .*/, '…')),
      [
        'steps.0.name: wipe is a step already',
        'steps.1.after: there is no step nowhere of the run; …',
        'steps.1.sends: there is no command kind disk.shred',
        'steps.2.name: power-off is a step already',
        'steps.2.sends: declares node.reboot, and the step sends site.httpProxy',
        'steps.3.do: must name one thing to do: one of driver.invoke, site.httpProxy, service.restart, node.reboot',
        'steps.4.do: must name one thing to do: one of driver.invoke, site.httpProxy, service.restart, node.reboot',
      ],
    );
  });

  it('BAT-036 a step stands where somebody is who can do it: the ramdisk up to the jump, the system behind its join, the site always', () => {
    const places = (make: (after: string) => ProfileStep) => provisionStepNames.filter((after) => problemsOf([make(after)]).length === 0);
    const ramdisk = ['ramdisk-join', 'diagnose', 'wipe', 'deploy', 'clean-up'];
    const inOrder = (names: readonly string[]) => provisionStepNames.filter((name) => names.includes(name));
    assert.deepEqual(
      places((after) => requestStep({ after })),
      provisionStepNames,
    );
    assert.deepEqual(
      places((after) => invokeStep({ after }, { harmless: true })),
      inOrder([...ramdisk, 'provisioned-join']),
    );
    const ofSystem = places((after) => requestStep({ after, sends: ['node.reboot'], do: { 'node.reboot': { reason: 'x' } } }));
    assert.deepEqual(ofSystem, ['provisioned-join']);
    assert.match(
      problemsOf([invokeStep({ after: 'start' })])[0] ?? '',
      /nobody who runs driver\.invoke is there behind start; it can stand behind ramdisk-join, /,
    );
    // What a wipe has proven, nothing but the image may write to.
    assert.deepEqual(
      places((after) => invokeStep({ after })),
      inOrder([...ramdisk.filter((name) => name !== 'wipe'), 'provisioned-join']),
    );
    assert.match(problemsOf([invokeStep({ after: 'wipe' })])[0] ?? '', /would undo what the wipe proves: put it behind diagnose or deploy/);
  });

  it('BAT-038 two steps that destroy with the very same bytes are one leaf, which counts once: refused; what does no harm may be said twice', () => {
    const twice = (step: ProfileStep) => problemsOf([step, { ...step, name: 'again' }]);
    assert.match(twice(requestStep())[0] ?? '', /^steps\.1\.do: is byte for byte what step talos does/);
    assert.deepEqual(twice(requestStep({}, { method: 'GET', body: '' })), []);
    // A ramdisk's call names the run, a system's does not: other bytes.
    assert.deepEqual(problemsOf([invokeStep({ after: 'diagnose' }), invokeStep({ name: 'again', after: 'provisioned-join' })]), []);
  });

  it('says of each step everything that is wrong with what it does', () => {
    const [plugin, input] = ['../nic', 'x'.repeat(32 * 1024 + 1)];
    const bad = [
      invokeStep({}, { plugin, manifestSha256: 'AB', method: '-x', input }),
      requestStep(
        { name: 'get' },
        {
          method: 'GET',
          body: 'x',
          url: 'http://a/',
          pinSha256: 'a'.repeat(64),
          headers: [{ name: 'x', value: '1', valueRef: 'secret://x' }],
        },
      ),
    ];
    assert.deepEqual(
      problemsOf(bad).map((one) => one.split(': ')[0]),
      [
        'steps.0.do.driver.invoke.plugin',
        'steps.0.do.driver.invoke.manifestSha256',
        'steps.0.do.driver.invoke.method',
        'steps.0.do.driver.invoke.input',
        'steps.1.do.site.httpProxy.body',
        'steps.1.do.site.httpProxy.pinSha256',
        // A value and a reference, and a secret without TLS.
        'steps.1.do.site.httpProxy.headers',
        'steps.1.do.site.httpProxy.headers',
      ],
    );
    const headers = [
      { name: 'Authorization', value: 'Bearer x' },
      { name: 'host', value: 'a' },
      { name: 'x', value: '1' },
      { name: 'X', value: '2' },
    ];
    assert.deepEqual(problemsOf([requestStep({}, { headers })]), [
      'steps.0.do.site.httpProxy.headers: Authorization holds a secret, which a profile names by valueRef',
      "steps.0.do.site.httpProxy.headers: host is of the connection, which is not a step's to make",
      'steps.0.do.site.httpProxy.headers: X stands twice',
    ]);
  });

  it('BAT-035 the plan names each own step behind its place, with its time and what it declares', () => {
    const profile = goodProfile({
      steps: [
        invokeStep({ withinMs: 5 * minute }),
        requestStep({ sends: undefined }),
        requestStep({ name: 'poll' }, { method: 'GET', body: '' }),
      ],
    });
    const planned = runSteps('provision', profile).map(({ name, sends, destroys = false }) => [name, sends, destroys]);
    assert.deepEqual(planned.slice(4, 6), [
      ['diagnose', ['diag.disks', 'diag.dcgm'], false],
      ['nic', ['driver.invoke'], true],
    ]);
    assert.deepEqual(planned.slice(-3), [
      ['talos', [], false],
      ['poll', ['site.httpProxy'], false],
      ['clean-up', ['boot.cleanUp'], false],
    ]);
    const times = runSteps('provision', profile).flatMap(({ name, deadlineMs }) =>
      name === 'nic' || name === 'poll' ? [deadlineMs(profile) / minute] : [],
    );
    assert.deepEqual(times, [5, 2 + 15]);
    assert.deepEqual(
      ownStepsOf(profile).map(({ ordinal, act, on, harmless, repeats }) => [ordinal, act, on, harmless, repeats]),
      [
        [1, 'invoke-ramdisk', 'ramdisk', false, false],
        [2, 'request', 'site', false, false],
        [3, 'request', 'site', true, true],
      ],
    );
    assert.deepEqual(runSteps('retire', profile), stepsOf.retire, 'a retirement boots the profile and does nothing of its own');
  });

  it('BAT-037 every step that may destroy and has not said what it sends is a fault of the profile, told with all others; what does no harm is none', () => {
    const undeclared = (kind: string): string =>
      `does not declare ${kind}, which may destroy: no approver is asked for it, and it would be refused when it is sent; write sends: [${kind}]`;
    const reboot = { 'node.reboot': { reason: 'firmware' } };
    assert.deepEqual(
      problemsOf([
        invokeStep({ sends: undefined }),
        requestStep({ sends: [] }),
        requestStep({ name: 'reboot', sends: ['node.rebot'], do: reboot }),
        requestStep({ name: 'again', sends: ['bmc.power'], do: { 'node.reboot': { reason: 'again' } } }),
        requestStep({ name: 'delete', sends: undefined, after: 'nowhere' }, { method: 'DELETE' }),
      ]),
      [
        `steps.0.sends: ${undeclared('driver.invoke')}`,
        `steps.1.sends: ${undeclared('site.httpProxy')}`,
        'steps.2.sends: there is no command kind node.rebot',
        'steps.3.sends: declares bmc.power, and the step sends node.reboot',
        `steps.4.after: there is no step nowhere of the run; there are ${provisionStepNames.join(', ')}`,
        `steps.4.sends: ${undeclared('site.httpProxy')}`,
      ],
    );
    const harmless = [
      requestStep({ name: 'poll', sends: undefined }, { method: 'GET', body: '' }),
      invokeStep({ name: 'read', sends: undefined }, { harmless: true }),
      requestStep({ name: 'restart', sends: undefined, do: { 'service.restart': { unit: 'a.service' } } }),
    ];
    assert.deepEqual(problemsOf(harmless), []);
    // HEAD is no readiness poll: what a controller does with it is its maker's business.
    assert.deepEqual(problemsOf([requestStep({ sends: undefined }, { method: 'HEAD', body: '' })]), [
      `steps.0.sends: ${undeclared('site.httpProxy')}`,
    ]);
  });

  it('BAT-037 what a step may do is decided from the profile as the machine decides it from the bytes, for each kind that a step can have', () => {
    const doings: StepDoing[] = [
      ...(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const).map((method) => requestStep({}, { method, body: '' }).do),
      ...[true, false].map((harmless) => invokeStep({}, { harmless }).do),
      { 'service.restart': { unit: 'a.service' } },
      { 'node.reboot': { reason: 'firmware' } },
    ];
    assert.deepEqual(new Set(doings.flatMap((doing) => Object.keys(doing))), new Set(stepKinds));
    const steps = doings.map((doing, at) => requestStep({ name: `s${at}`, after: 'provisioned-join', do: doing }));
    const own = ownStepsOf({ steps });
    assert.equal(own.length, steps.length);
    for (const step of own) {
      const { value, typeUrl } = stepPayload(step, { machineId: 'm1', runId: 'aaaaaaaaaaaa' });
      const schema = protocolRegistry.getMessage(typeUrl.slice(typeUrl.lastIndexOf('/') + 1));
      assert.ok(schema !== undefined && findCommandKind(step.kind)?.payload === schema.typeName, step.kind);
      assert.equal(harmOf(step.kind, fromBinary(schema, value)) === 'none', step.harmless, JSON.stringify(step.do));
    }
  });

  it('M53 keeps a disk only by name', () => {
    const problems = problemsOfProfile(goodProfile({ wipe: { keep: [{}], methods: [], samples: 64 } }), provisionStepNames);
    assert.deepEqual(
      problems.map(({ path }) => path.join('.')),
      ['wipe.keep.0'],
    );
  });
});
