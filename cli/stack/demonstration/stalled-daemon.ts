/**
 * The daemon that is stopped on purpose, so that the gate of the fleet is seen to wait for it: stopped before the new root is
 * published, continued some seconds after the rotation has said that it waits for this one.
 */
import { second } from '../../../domain/time.ts';
import type { RotationRun } from '../../rotation-port.ts';
import type { Fleet } from './fleet.ts';

/** Long enough to read the line; far below the two minutes after which a silent daemon counts as gone. */
const seenForMs = 5 * second;

export interface StalledDaemon {
  readonly name: string;
  look(run: RotationRun): void;
  /** Continues it whatever was seen. */
  end(): void;
}

export function stallOne({
  fleet,
  name,
  say,
  now,
}: {
  fleet: Fleet;
  name: string;
  say: (line: string) => void;
  now: () => number;
}): StalledDaemon {
  let stalled = true;
  let waitedForSince: number | null = null;
  say(`${name} is stopped on purpose: the rotation will have to wait for it`);
  const goOn = fleet.stall(name);
  const end = (): void => {
    stalled = false;
    goOn();
  };
  return {
    name,
    end,
    look: ({ status }) => {
      if (!stalled || status === null) return;
      const past = !['planning', 'adding', 'waiting-processes', 'waiting-fleet'].includes(status.phase);
      const waits = status.phase === 'waiting-fleet' && (status.behind?.names ?? []).includes(name);
      if (waits) waitedForSince ??= now();
      if (past || (waitedForSince !== null && now() - waitedForSince >= seenForMs)) {
        say(`${name} goes on`);
        end();
      }
    },
  };
}
