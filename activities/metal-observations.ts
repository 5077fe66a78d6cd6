/**
 * How each step of a run is seen to be reached: by what is there now, never by the step's own word where anything else can show it.
 * A wipe is its evidence, a boot is the identity that joined, off is a state that was read after the command.
 */
import { isFinished } from '../domain/commands/states.ts';
import { isControlError } from '../domain/errors.ts';
import type { ActName } from '../domain/metal/acts.ts';
import { DiagDcgmReportSchema, site } from '../proto/index.ts';
import { stepAnswered } from './metal-own-steps.ts';
import type { MetalControlPorts, RunFacts } from './metal-ports.ts';
import { decoded, failed, type Looking, reached, type Seen } from './metal-seen.ts';

export type ObservationName = 'ramdisk-joined' | 'diagnosed' | 'system-joined' | 'off' | 'inventoried' | 'boot-seen' | 'step-answered';

const notYet = (detail: string): Seen => ({ kind: 'not-yet', detail });

export const observations: Readonly<Record<ObservationName, (ports: MetalControlPorts, looking: Looking) => Promise<Seen>>> = Object.freeze(
  {
    'ramdisk-joined': async (ports, looking) => {
      const { facts } = looking;
      const off = quarantined(facts);
      if (off !== null) return off;
      await keepPower(ports, looking, 'power');
      const { bootEntry, node } = facts;
      if (bootEntry === null || bootEntry.usedAt === null) return notYet(`no ramdisk has joined as ${facts.machine.id}`);
      if (node.certificateRole !== 'ramdisk') return notYet(`the ramdisk of ${facts.machine.id} is joining`);
      if (node.connectedRole !== 'ramdisk') return notYet(`the ramdisk of ${facts.machine.id} has joined and is not connected`);
      return reached(`boot ${bootEntry.attempt} joined as ramdisk, generation ${node.generation}`);
    },

    diagnosed: async ({ runs }, { facts, answer }) => {
      const disks = await answer('read-disks');
      if (disks?.result == null) return failed('no-report', 'the ramdisk reported no disks');
      const gpus = await answer('diagnose-gpus');
      const ill = gpus?.result == null ? [] : decoded(DiagDcgmReportSchema, gpus.result).tests.filter(({ result }) => result === 'fail');
      if (ill.length > 0) return failed('gpu-diagnosis', ill.map(({ name, detail }) => `${name}: ${detail}`).join('; '));
      return settled(async () => (await runs.recordDisks({ runId: facts.run.id, report: disks.result as Uint8Array })).summary);
    },

    // M11: the jump kills who would tell of it. Who joins next tells.
    'system-joined': async (_ports, { facts, answer }) => {
      const off = quarantined(facts);
      if (off !== null) return off;
      const { node, machine } = facts;
      if (node.certificateRole === 'node' && node.connectedRole === 'node')
        return reached(`the system joined, generation ${node.generation}`);
      const start = await answer('start');
      const again = (await answer('power'))?.createdAt ?? 0;
      const jumped = start === undefined || !isFinished(start.state) || start.state === 'done' || start.state === 'interrupted';
      if (!jumped && again < start.createdAt) return failed('start-failed', `${start.state}: ${start.error}`);
      return notYet(
        node.certificateRole === 'node'
          ? `the system of ${machine.id} has joined and is not connected`
          : `no system has joined as ${machine.id}`,
      );
    },

    // M20: read after it was asked for, and off; what the controller does not say is not off.
    off: async (ports, looking) => {
      const power = await keepPower(ports, looking, 'power-off');
      if (power === null) return failed('power-not-off', 'the controller did not say what the power is');
      if (power.state === site.PowerState.OFF) return reached(power.already ? 'it was off' : 'off, as the controller says');
      return failed('power-not-off', `the controller says ${site.PowerState[power.state] ?? power.state}`);
    },

    inventoried: async ({ runs }, { facts, answer }) => {
      const report = (await answer('inventory'))?.result;
      if (report == null) return failed('no-report', 'the controller reported nothing');
      return settled(async () => (await runs.recordInventory({ runId: facts.run.id, report })).summary);
    },

    'step-answered': stepAnswered,

    // Which path booted (M27): somebody who never asked has booted something else, somebody who asked came no further.
    'boot-seen': async (_ports, { answer, facts }) => {
      const result = (await answer('clean-up'))?.result;
      if (result == null)
        return failed('no-netboot', `no ramdisk joined as ${facts.machine.id}; the boot server did not say whether it asked`);
      const { scriptsServed, lastSeenAtMs } = decoded(site.BootCleanUpResultSchema, result);
      if (scriptsServed === 0)
        return failed('no-netboot', `${facts.machine.id} never asked the boot server: it has booted something else, or nothing`);
      const at = new Date(Number(lastSeenAtMs)).toISOString();
      return failed(
        'no-ramdisk-join',
        `${facts.machine.id} asked the boot server ${scriptsServed} time(s), last at ${at}, and no ramdisk joined`,
      );
    },
  },
);

const quarantined = ({ machine }: RunFacts): Seen | null =>
  machine.state === 'quarantined' ? failed('quarantined', machine.stateReason) : null;

/** What a refused fact means for the step; a wait or a fault stays one. */
export async function settled(store: () => Promise<string>): Promise<Seen> {
  try {
    return reached(await store());
  } catch (error) {
    const refused =
      isControlError(error) && ['CONFLICT', 'INVALID_STATE', 'INVALID_INPUT', 'BAD_SIGNATURE', 'MALFORMED'].includes(error.code);
    if (!refused) throw error;
    const reason = error.details['reason'];
    return failed(typeof reason === 'string' ? reason : 'refused', error.message);
  }
}

const powerNames: Readonly<Record<site.PowerState, 'on' | 'off' | 'changing' | 'unknown'>> = Object.freeze({
  [site.PowerState.UNSPECIFIED]: 'unknown',
  [site.PowerState.UNKNOWN]: 'unknown',
  [site.PowerState.ON]: 'on',
  [site.PowerState.OFF]: 'off',
  [site.PowerState.CHANGING]: 'changing',
});

/** The power as it was observed behind a command; null where none is known. */
async function keepPower({ runs }: MetalControlPorts, { facts, answer }: Looking, act: ActName): Promise<site.BmcPowerResult | null> {
  const result = (await answer(act))?.result;
  if (result == null) return null;
  const power = decoded(site.BmcPowerResultSchema, result);
  const at = Number(power.observedAtMs);
  // A wait looks at the same answer again and again: once it is kept, there is nothing to write.
  if ((facts.machine.powerAt ?? Number.NEGATIVE_INFINITY) < at)
    await runs.recordPower({ runId: facts.run.id, state: powerNames[power.state] ?? 'unknown', at });
  return power;
}
