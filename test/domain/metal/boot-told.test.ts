import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type BootCommandFact,
  type BootedMachine,
  demandedAnswer,
  judgeTelling,
  quickTries,
  type TellingRun,
} from '../../../domain/metal/boot-told.ts';
import { isUnderMaintenance, type MachineState, machineStates } from '../../../domain/metal/life-cycle.ts';
import { day, minute } from '../../../domain/time.ts';

const now = Date.UTC(2030, 0, 1);
const run = (over: Partial<TellingRun> = {}): TellingRun => ({
  id: 'aaaaaaaaaaaa',
  kind: 'provision',
  end: 'done',
  remains: null,
  deployed: true,
  ...over,
});
const machine = (state: MachineState, over: Partial<BootedMachine> = {}): BootedMachine => ({
  state,
  tombstone: 'none',
  hasAddress: true,
  lastRun: run(),
  isInRun: false,
  ...over,
});
const fact = (over: Partial<BootCommandFact> = {}): BootCommandFact => ({
  kind: 'boot.cleanUp',
  runId: 'aaaaaaaaaaaa',
  answer: 'local',
  end: 'done',
  endedAt: now - 2 * day,
  error: '',
  isOfThisIdentity: true,
  isOwn: false,
  ...over,
});
const prepared = (over: Partial<BootCommandFact> = {}): BootCommandFact => fact({ kind: 'boot.prepareRamdisk', answer: null, ...over });
const own = (over: Partial<BootCommandFact> = {}): BootCommandFact => fact({ isOwn: true, answer: 'hold', ...over });

const judge = (of: BootedMachine, told: readonly BootCommandFact[], connected = true) => judgeTelling(of, { connected, told }, now);
/** In a word: what is told, of which run, as which attempt. */
const word = (of: BootedMachine, told: readonly BootCommandFact[], connected = true): string => {
  const { kind, ...rest } = judge(of, told, connected);
  return kind === 'tell'
    ? `tell ${String('answer' in rest && rest.answer)} ${String('runId' in rest && rest.runId)} ${String('n' in rest && rest.n)}`
    : kind;
};

describe('what boot servers have to be told behind a run', () => {
  it('M6 every state under maintenance is held, whatever its last run was; no other state demands the disk but for that run', () => {
    const ends: readonly (TellingRun | null)[] = [
      null,
      run(),
      ...(['provision', 'retire'] as const).flatMap((kind) =>
        (['untouched', 'clean', 'dirty'] as const).map((remains) => run({ kind, end: 'failed', remains })),
      ),
    ];
    const local = machineStates.flatMap((state) =>
      ends
        .filter((lastRun) => demandedAnswer(machine(state, { lastRun })) === 'local')
        .map((lastRun) => `${state}: ${lastRun === null ? 'no run' : `${lastRun.kind} ${lastRun.end} ${lastRun.remains}`}`),
    );
    const atRest = machineStates.filter((state) => !isUnderMaintenance(state) && state !== 'deleted');
    assert.deepEqual(
      local.filter((line) => !line.startsWith('deleted')),
      // An image with evidence, or a run that touched nothing.
      atRest.flatMap((state) => [
        ...(state === 'provisioned' ? ['provisioned: provision done null'] : []),
        `${state}: provision failed untouched`,
      ]),
    );
    for (const state of machineStates.filter(isUnderMaintenance))
      for (const lastRun of ends) assert.equal(demandedAnswer(machine(state, { lastRun })), 'hold', state);
  });

  it('M6 a run that ended behind its workflow’s back: its entry goes, and what was told of the disk is what was left of it', () => {
    const untouched = run({ end: 'failed', remains: 'untouched' });
    assert.equal(word(machine('available', { lastRun: untouched }), [prepared()]), 'tell local aaaaaaaaaaaa 1');
    assert.equal(
      word(machine('available', { lastRun: run({ end: 'failed', remains: 'clean' }) }), [prepared()]),
      'tell hold aaaaaaaaaaaa 1',
    );
    // Told to start the image, and given up before anybody joined.
    const dirty = machine('quarantined', { lastRun: run({ end: 'failed', remains: 'dirty' }) });
    assert.equal(word(dirty, [prepared(), fact()]), 'tell hold aaaaaaaaaaaa 1');
    assert.equal(word(dirty, [prepared(), fact(), own()]), 'settled');
  });

  it('M6 a quarantine of a machine at rest is told to every boot server of the site, also to one that knows nothing of it', () => {
    const held = machine('quarantined');
    assert.equal(word(held, [prepared(), fact()]), 'tell hold aaaaaaaaaaaa 1');
    assert.equal(word(held, []), 'tell hold aaaaaaaaaaaa 1', 'its owner may have it send strangers to their disks');
    assert.equal(word(machine('quarantined', { lastRun: null }), []), 'tell hold 000000000000 1');
    assert.equal(word(machine('quarantined', { hasAddress: false }), []), 'settled', 'nothing by which it could be told');
    assert.equal(word(machine('provisioned'), []), 'settled');
  });

  it('M6 a released machine that was told to wait is let go, and one that was let go by another agent is held', () => {
    assert.equal(word(machine('provisioned'), [prepared(), fact({ answer: 'hold' })]), 'tell local aaaaaaaaaaaa 1');
    const retired = machine('retired', { lastRun: run({ id: 'bbbbbbbbbbbb', kind: 'retire' }) });
    assert.equal(word(retired, [prepared(), fact()]), 'tell hold bbbbbbbbbbbb 1');
    assert.equal(
      word(machine('available'), [prepared(), fact(), own({ isOwn: false })]),
      'settled',
      'a person let it go; it is still held',
    );
  });

  it('M55 a deleted machine gives its addresses up behind a proven wipe or a lifted tombstone alone, and where it is held', () => {
    const held = [fact({ answer: 'hold' })];
    const deleted = (over: Partial<BootedMachine>) => machine('deleted', over);
    const [retired, wiped, dirty] = [
      run({ kind: 'retire' }),
      run({ end: 'failed', remains: 'clean' }),
      run({ end: 'failed', remains: 'dirty' }),
    ];
    for (const lastRun of [retired, wiped]) {
      assert.equal(word(deleted({ lastRun }), held), 'tell local aaaaaaaaaaaa 1');
      assert.equal(word(deleted({ lastRun }), []), 'settled');
      assert.equal(word(deleted({ lastRun, tombstone: 'stands' }), held), 'settled');
    }
    for (const lastRun of [dirty, run(), null]) {
      assert.equal(word(deleted({ lastRun }), held), 'settled', 'nothing says that its disks are clean');
      assert.match(word(deleted({ lastRun, tombstone: 'lifted' }), held), /^tell local /);
    }
  });

  it('the clean-up names the run whose entry may stand, not the last one', () => {
    const dirty = machine('quarantined', { lastRun: run({ id: 'bbbbbbbbbbbb', end: 'failed', remains: 'dirty' }) });
    const lateClean = [prepared(), fact({ runId: 'bbbbbbbbbbbb', answer: 'hold' })];
    assert.equal(word(dirty, lateClean), 'tell hold aaaaaaaaaaaa 1');
    assert.equal(word(dirty, [...lateClean, own()]), 'settled');
  });

  it('the entry of a run that is open stands; only the disk is taken from it', () => {
    const gone = machine('provisioning', { isInRun: true, lastRun: run({ end: 'open' }) });
    assert.equal(word(gone, [prepared()]), 'settled');
    assert.equal(word(gone, [prepared(), fact()]), 'tell hold aaaaaaaaaaaa 1');
  });

  it('what may have had its effect is not believed, and what never began is passed over', () => {
    const held = machine('quarantined');
    assert.equal(word(held, [fact({ answer: 'hold', end: 'unknown' })]), 'tell hold aaaaaaaaaaaa 1');
    assert.equal(word(held, [fact({ answer: 'hold' }), fact({ end: 'unknown' })]), 'tell hold aaaaaaaaaaaa 1');
    assert.equal(word(held, [fact({ answer: 'hold' }), fact({ end: 'never' })]), 'settled');
    assert.equal(word(held, [fact({ answer: 'hold' }), prepared({ end: 'unknown' })]), 'tell hold aaaaaaaaaaaa 1');
  });

  it('an agent that joined anew is told again: it may have lost its records', () => {
    assert.equal(word(machine('quarantined'), [fact({ answer: 'hold', isOfThisIdentity: false })]), 'tell hold aaaaaaaaaaaa 1');
    assert.equal(word(machine('provisioned'), [fact({ isOfThisIdentity: false })]), 'tell local aaaaaaaaaaaa 1');
  });

  it('one command for a difference: nothing is sent while one is on its way, nor to an agent that is away', () => {
    const held = machine('quarantined');
    assert.equal(word(held, [fact(), own({ end: 'pending' })]), 'under-way');
    assert.equal(word(held, [fact(), prepared({ end: 'pending' })]), 'under-way');
    assert.equal(word(held, [fact()], false), 'away');
  });

  it('what failed or expired is tried again, ever more slowly, then once a day and shown', () => {
    const held = machine('quarantined');
    const failures = (count: number, agoMs: number) => [
      fact(),
      ...Array.from({ length: count }, (_, at) =>
        own({ end: at % 2 === 0 ? 'unknown' : 'never', endedAt: now - agoMs, error: 'the disk is full' }),
      ),
    ];
    const pauses = [1, 4, 16, 64].map((minutes) => minutes * minute);
    for (const [at, pause] of pauses.entries()) {
      assert.deepEqual(judge(held, failures(at + 1, pause - 1)), {
        kind: 'pause',
        answer: 'hold',
        failed: at + 1,
        error: 'the disk is full',
      });
      assert.equal(word(held, failures(at + 1, pause)), `tell hold aaaaaaaaaaaa ${at + 2}`);
    }
    assert.equal(judge(held, failures(quickTries, day - 1)).kind, 'pause');
    assert.equal(word(held, failures(quickTries, day)), `tell hold aaaaaaaaaaaa ${quickTries + 1}`);
    const [first, ...more] = failures(quickTries, day);
    assert.equal(
      word(machine('quarantined'), [first as BootCommandFact, ...more, own(), fact()]),
      `tell hold aaaaaaaaaaaa ${quickTries + 2}`,
      'one that was done ends the count',
    );
  });

  it('an agent that has no boot server is asked once a day', () => {
    const without = (agoMs: number) => [own({ end: 'no-server', endedAt: now - agoMs })];
    assert.equal(word(machine('quarantined'), without(day - 1)), 'settled');
    assert.equal(word(machine('quarantined'), without(day)), 'tell hold aaaaaaaaaaaa 2');
  });

  it('M6 whatever was told before in whatever order, a machine under maintenance is settled only where the last word that counts was to hold', () => {
    const arbitrary = fc.record({
      kind: fc.constantFrom('boot.prepareRamdisk' as const, 'boot.cleanUp' as const),
      runId: fc.constantFrom('aaaaaaaaaaaa', 'bbbbbbbbbbbb'),
      answer: fc.constantFrom('hold' as const, 'local' as const),
      end: fc.constantFrom('done' as const, 'never' as const, 'unknown' as const),
      endedAt: fc.constant(now - 2 * day),
      error: fc.constant(''),
      isOfThisIdentity: fc.boolean(),
      isOwn: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(arbitrary, { maxLength: 8 }), (told) => {
        const held = machine('quarantined');
        const { kind } = judge(held, told);
        const last = told.filter(({ end }) => end !== 'never').at(-1);
        if (kind === 'settled')
          assert.deepEqual([last?.kind, last?.answer, last?.end, last?.isOfThisIdentity], ['boot.cleanUp', 'hold', 'done', true]);
        const answered = judge(held, [...told, own({ runId: runIn(judge(held, told)) })]);
        if (kind === 'tell') assert.equal(answered.kind, 'settled', 'one command ends the difference');
      }),
    );
  });
});

const runIn = (telling: ReturnType<typeof judge>): string => (telling.kind === 'tell' ? telling.runId : 'cccccccccccc');
