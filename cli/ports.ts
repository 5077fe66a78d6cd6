/**
 * The outside, as commands receive it. Everything is a function, so a command reaches only for what it uses: `nodes list`
 * never loads the Temporal client, and `rotation verify FILE` opens no connection at all.
 */
import { createOperatorClient, type OperatorClient } from './api-client.ts';
import type { CliIo } from './io.ts';
import type { RotationPort } from './rotation-port.ts';
import { createSettings, type Settings } from './settings.ts';

export interface Ports {
  readonly io: CliIo;
  readonly settings: Settings;
  api(): OperatorClient;
  /** The caller closes it. @throws UNAVAILABLE when Temporal does not answer */
  rotation(): Promise<RotationPort>;
}

export function createPorts(io: CliIo): Ports {
  const settings = createSettings(io.env);
  return {
    io,
    settings,
    api: () => createOperatorClient(settings),
    rotation: async () => (await import('./temporal-rotation.ts')).connectRotation(settings.temporalEnv()),
  };
}
