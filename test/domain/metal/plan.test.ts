import assert from 'node:assert/strict';
import { actionsFor, powerPlan } from '../../../domain/metal/plan.ts';
import { networkBoots, problemsOfProfile, profileCommandKinds, worstBootCycleMs } from '../../../domain/metal/profile.ts';
import { provisionStepNames, stepsOf } from '../../../domain/metal/steps.ts';
import { minute } from '../../../domain/time.ts';
import { goodProfile } from './profiles.ts';

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

  it('BAT-036 a profile’s own step adds what it declares, and BAT-037 nothing when it declares nothing', () => {
    const withStep = (sends?: string[]) =>
      goodProfile({ steps: [{ name: 'talos', after: 'provisioned-join', ...(sends === undefined ? {} : { sends }) }] });
    assert.ok(profileCommandKinds(withStep(['site.httpProxy']), stepsOf.provision).includes('site.httpProxy'));
    assert.deepEqual(profileCommandKinds(withStep(), stepsOf.provision), profileCommandKinds(goodProfile(), stepsOf.provision));
  });

  it('names every step that cannot be, and every kind that does not exist', () => {
    const steps = [
      { name: 'wipe', after: 'deploy' },
      { name: 'x', after: 'nowhere', sends: ['disk.shred'] },
    ];
    const problems = problemsOfProfile(goodProfile({ steps }), provisionStepNames).map(
      ({ path, message }) => `${path.join('.')}: ${message}`,
    );
    assert.equal(problems.length, 4);
    assert.equal(problems[0], "steps: no run carries out a profile's own steps: leave them out");
    assert.equal(problems[1], 'steps.0.name: wipe is a step already');
    assert.match(problems[2] ?? '', /^steps\.1\.after: there is no step nowhere; there are approve, /);
    assert.equal(problems[3], 'steps.1.sends: there is no command kind disk.shred');
  });

  it('M53 keeps a disk only by name', () => {
    const problems = problemsOfProfile(goodProfile({ wipe: { keep: [{}], methods: [], samples: 64 } }), provisionStepNames);
    assert.deepEqual(
      problems.map(({ path }) => path.join('.')),
      ['wipe.keep.0'],
    );
  });
});
