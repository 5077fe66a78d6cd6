/**
 * service.restart: one of the units this machine's owner allows. The list is the machine's own configuration; a signed node spec may
 * narrow it, nothing can widen it from afar.
 */
import { ControlError } from '../../domain/errors.ts';
import { type ServiceRestart, ServiceRestartResultSchema } from '../../proto/index.ts';
import { type KindHandler, succeeded } from './handler.ts';
import { isUnitName, runProgram } from './program.ts';

export interface RestartPolicy {
  /** The units that may be restarted now. */
  readonly restartableUnits: () => readonly string[];
}

export function serviceRestartHandler(policy: RestartPolicy): KindHandler {
  return {
    async run(payload, { signal }) {
      const { unit } = payload as ServiceRestart;
      assertAllowed(unit, policy.restartableUnits());
      const restart = await runProgram('systemctl', ['restart', '--', unit], signal);
      if (restart.status !== 0) throw failure(`restarting ${unit}`, restart);
      const show = await runProgram('systemctl', ['show', '--property=ActiveState', '--value', '--', unit], signal);
      return succeeded(ServiceRestartResultSchema, { activeState: show.stdout.trim().slice(0, 64) });
    },
  };
}

function assertAllowed(unit: string, allowed: readonly string[]): void {
  if (!isUnitName(unit)) throw new ControlError('INVALID_INPUT', 'the payload names no systemd unit', { details: { reason: 'unit-name' } });
  if (allowed.includes(unit)) return;
  const list = allowed.length === 0 ? 'none is' : `allowed: ${allowed.join(', ')}`;
  throw new ControlError('PERMISSION_DENIED', `unit ${unit} is not among those this machine lets be restarted (${list})`, {
    details: { reason: 'unit-not-allowed' },
  });
}

/** systemctl says why on stderr; on a machine without a running systemd it says that. */
function failure(what: string, end: { status: number | null; stderr: string }): ControlError {
  const said = end.stderr.trim().split('\n')[0] ?? '';
  const absent = /not been booted with systemd|Failed to connect to bus|Host is down/.test(end.stderr);
  const message = absent
    ? `${what} failed: systemd does not run on this machine`
    : `${what} failed with status ${end.status ?? 'none'}: ${said.slice(0, 300)}`;
  return new ControlError(absent ? 'UNSUPPORTED' : 'UNAVAILABLE', message, { details: { reason: absent ? 'no-systemd' : 'systemctl' } });
}
