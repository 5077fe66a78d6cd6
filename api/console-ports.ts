/** The console's reader: whoever the bearer is, with the batches that this caller may see. */
import type { ConsolePorts, ConsoleReader } from './console/ports.ts';
import type { Identity } from './identity.ts';
import type { OperatorPorts } from './ports.ts';
import { assertPermission, type Principal } from './principal.ts';

export const createConsolePorts = (identity: Identity, { batches, now }: Pick<OperatorPorts, 'batches' | 'now'>): ConsolePorts => ({
  now,
  async authenticate(bearer) {
    const principal = await identity.authenticate(`Bearer ${bearer}`);
    assertPermission(principal, 'batches.read');
    return readerOf(principal, batches);
  },
});

const readerOf = (principal: Principal, batches: OperatorPorts['batches']): ConsoleReader => ({
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
  const { size, percent, maxFailures, pauseMs, healthGate, maxPerLabel } = waves as Record<string, unknown>;
  const label = maxPerLabel as { label: string; count: number } | undefined;
  return [
    size === undefined ? `waves of ${String(percent)} %` : `waves of ${String(size)}`,
    `stop after ${String(maxFailures)} failure(s)`,
    ...(label === undefined ? [] : [`at most ${label.count} of one ${label.label} at a time`]),
    ...(Number(pauseMs) > 0 ? [`${Number(pauseMs) / 1_000} s between waves`] : []),
    ...(healthGate === true ? ['machines are back before the next'] : []),
  ].join(', ');
}
