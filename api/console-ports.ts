/** The console's reader: whoever the bearer is, with the batches that this caller may see. */
import type { WavePlan } from '../domain/batch/waves.ts';
import type { ConsolePorts, ConsoleReader } from './console/ports.ts';
import type { Identity } from './identity.ts';
import type { OperatorPorts } from './ports.ts';
import { assertPermission, type Principal } from './principal.ts';

export const createConsolePorts = (
  identity: Identity,
  { batches, machines, now }: Pick<OperatorPorts, 'batches' | 'machines' | 'now'>,
): ConsolePorts => ({
  now,
  async authenticate(bearer) {
    const principal = await identity.authenticate(`Bearer ${bearer}`);
    assertPermission(principal, 'batches.read');
    return { ...readerOf(principal, batches), ...machinesOf(principal, machines) };
  },
});

type MachineReader = Pick<ConsoleReader, 'listMachines' | 'getMachine'>;

function machinesOf(principal: Principal, machines: OperatorPorts['machines']): MachineReader {
  const mayRead = (): void => assertPermission(principal, 'machines.read');
  return {
    async listMachines({ state, limit }) {
      mayRead();
      const found = await machines.list(principal, { after: '', limit, ...(state === null ? {} : { state }) });
      return { machines: found, counts: await machines.counts(principal) };
    },
    async getMachine(id, runId) {
      mayRead();
      const machine = await machines.get(principal, id);
      const shown = runId ?? machine.runs[0]?.id ?? null;
      const run = shown === null ? null : await machines.run(principal, shown);
      return { machine, run: run?.machineId === id ? run : null };
    },
  };
}

const readerOf = (principal: Principal, batches: OperatorPorts['batches']): Omit<ConsoleReader, keyof MachineReader> => ({
  name: principal.name,
  listBatches: async (limit) =>
    (await batches.list(principal, { after: '', limit })).map((batch) => ({ ...batch, proposedBy: batch.proposedBy ?? null })),
  async getBatch(id) {
    const [batch, overview] = [await batches.get(principal, id), await batches.overview(principal, id)];
    const { progress, waves, proposedBy = null, ...rest } = batch;
    const { members = 0, held = 0, states = {} } = progress ?? {};
    return { batch: { ...rest, proposedBy, members, waves: wavesText(waves), progress: { held, states } }, overview };
  },
});

/** One line for people. */
function wavesText(waves: unknown): string | null {
  if (typeof waves !== 'object' || waves === null) return null;
  const { size, percent = 100, maxFailures, pauseMs, healthGate, maxPerLabel: label } = waves as WavePlan;
  return [
    size === undefined ? `waves of ${percent} %` : `waves of ${size}`,
    `stop after ${maxFailures} failure(s)`,
    ...(label === undefined ? [] : [`at most ${label.count} of one ${label.label} at a time`]),
    ...(pauseMs > 0 ? [`${pauseMs / 1_000} s between waves`] : []),
    ...(healthGate ? ['machines are back before the next'] : []),
  ].join(', ');
}
