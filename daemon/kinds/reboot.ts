/**
 * node.reboot: done when the machine is back with another boot id, and not before. The boot id is noted, durable, before anything is
 * asked of the machine; the result is made by the next run of the daemon.
 *
 * If the daemon comes back with the same boot id, nobody can say whether the machine is about to go down: the command is
 * reported interrupted and never repeated.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { type NodeReboot, NodeRebootResultSchema } from '../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from './handler.ts';
import { runProgram } from './program.ts';

export interface RebootPorts {
  readonly readBootId: () => Promise<string>;
  /** Sets the reboot off; the machine goes down soon after. */
  readonly reboot: (signal: AbortSignal) => Promise<void>;
}

/** A person may still step in; longer waits belong to the schedule of the command. */
const delayMaxSeconds = 300;

export function rebootHandler({ readBootId, reboot }: RebootPorts): KindHandler {
  return {
    prepare: async () => ({ bootId: await readBootId() }),
    async run(payload, { signal }) {
      const { delaySeconds } = payload as NodeReboot;
      if (delaySeconds > delayMaxSeconds)
        throw new ControlError('INVALID_INPUT', `delay_seconds is ${delaySeconds}, at most ${delayMaxSeconds}`, {
          details: { reason: 'delay' },
        });
      if (delaySeconds > 0) await sleep(delaySeconds * second, undefined, { signal });
      await reboot(signal);
      // From here on the machine goes down; if it does not, the kind's timeout says so.
      return new Promise<never>(() => undefined);
    },
    recover: async (_payload, context) => proven(context, await readBootId()),
  };
}

function proven({ note }: KindContext, bootIdAfter: string): KindEnd {
  const bootIdBefore = note['bootId'] ?? '';
  if (bootIdBefore !== '' && bootIdAfter !== bootIdBefore) return succeeded(NodeRebootResultSchema, { bootIdBefore, bootIdAfter });
  return {
    kind: 'interrupted',
    message: `the daemon came back in the same boot ${bootIdAfter}: whether the reboot was set off is not known, and it is not repeated`,
  };
}

/** systemd's own way down. */
export async function systemdReboot(signal: AbortSignal): Promise<void> {
  const end = await runProgram('systemctl', ['reboot'], signal);
  if (end.status === 0) return;
  throw new ControlError(
    'UNAVAILABLE',
    `systemctl reboot failed with status ${end.status ?? 'none'}: ${(end.stderr.trim().split('\n')[0] ?? '').slice(0, 300)}`,
    {
      details: { reason: 'systemctl' },
    },
  );
}
