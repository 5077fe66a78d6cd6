/**
 * Schedule bc-reconcile-boots: tells boot servers what the state of their machines demands, where no run did (M6): an operator ended a run
 * whose workflow was gone, a machine at rest was quarantined or deleted, a clean-up failed. No input. What was sent is looked at by the next run.
 */
import { proxyActivities, setCurrentDetails } from '@temporalio/workflow';
import type { BootControlActivities, BootSigningActivities } from '../../activities/boots.ts';
import { onControl, onSigning } from '../shared/activity-options.ts';
import { isRecord } from '../shared/shape.ts';
import { versioned } from '../shared/versioning.ts';

const within = { startToCloseTimeout: '50 seconds', scheduleToCloseTimeout: '5 minutes' } as const;
const { compareBoots } = proxyActivities<BootControlActivities>({ ...onControl, ...within });
const { tellBoots } = proxyActivities<BootSigningActivities>({ ...onSigning, ...within });

export interface BootsReconciled {
  readonly sent: number;
  readonly underWay: number;
  readonly away: number;
  readonly failing: number;
}

export async function reconcileBoots(): Promise<BootsReconciled> {
  const found: unknown = await compareBoots.executeWithOptions({ summary: 'boot servers that say what their machines no longer are' }, []);
  const { tell, underWay, away, failing } = readFound(found);
  const summary = `boot servers of ${tell.length} machine(s)`;
  const told: unknown = tell.length === 0 ? { sent: 0 } : await tellBoots.executeWithOptions({ summary }, [{ machines: tell }]);
  const result = { sent: countOf(told, 'sent'), underWay, away, failing };
  setCurrentDetails(describe(result));
  return result;
}
versioned('AUTO_UPGRADE', reconcileBoots);

/** Anyone with write access may complete an activity by hand; whoever signs reads the database, whatever stands here. */
function readFound(value: unknown): Omit<BootsReconciled, 'sent'> & { readonly tell: { machineId: string; generation: number }[] } {
  const { tell } = isRecord(value) ? value : {};
  const machines = (Array.isArray(tell) ? tell : []).flatMap((one: unknown) => {
    const { machineId, generation } = isRecord(one) ? one : {};
    return typeof machineId === 'string' && typeof generation === 'number' ? [{ machineId, generation }] : [];
  });
  return { tell: machines, underWay: countOf(value, 'underWay'), away: countOf(value, 'away'), failing: countOf(value, 'failing') };
}

function countOf(value: unknown, name: string): number {
  const count = isRecord(value) ? value[name] : undefined;
  return typeof count === 'number' ? count : 0;
}

const describe = ({ sent, underWay, away, failing }: BootsReconciled): string =>
  [
    `- told now: ${sent}; on the way: ${underWay}`,
    `- agents that are not connected: ${away}; told in vain again and again: ${failing}`,
    '- next: `better-compute stuck`',
  ].join('\n');
