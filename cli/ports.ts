/**
 * The outside, as commands receive it. Everything is a function, so a command reaches only for what it uses: `nodes list`
 * never loads the Temporal client, and `rotation verify FILE` opens no connection at all.
 */
import type { StuckItem } from '../api/stuck.ts';
import type { ControlError } from '../domain/errors.ts';
import { createOperatorClient, type OperatorClient } from './api-client.ts';
import { type BatchClient, createBatchClient } from './batch/client.ts';
import type { Finding } from './doctor/finding.ts';
import type { CliIo } from './io.ts';
import { createMachineClient, type MachineClient } from './machines/client.ts';
import type { AnyRotationPort } from './rotation-port.ts';
import { commandRoot, type RotationTarget } from './rotation-target.ts';
import { createSettings, type Settings } from './settings.ts';

export interface Ports {
  readonly io: CliIo;
  readonly settings: Settings;
  api(): OperatorClient;
  /** The api as approvers see it: nothing it answers is believed. */
  batches(): BatchClient;
  machines(): MachineClient;
  /** Of the command root unless another is named. The caller closes it. @throws UNAVAILABLE when Temporal does not answer */
  rotation(target?: RotationTarget): Promise<AnyRotationPort>;
  /** Everything doctor finds; never fails because something is down. */
  examine(pki: string | null): Promise<Finding[]>;
  /** The text of a support bundle. @throws INTERNAL when a secret would be in it */
  supportBundle(facts: { readonly pki: string | null; readonly findings: readonly Finding[] }): Promise<string>;
  /** What Temporal alone knows of what waits. @throws UNAVAILABLE */
  stuckWorkflows(): Promise<StuckItem[]>;
  /** Why a run ended before it sent its commands; null while it runs, or when nobody knows. */
  runFailure(workflowId: string): Promise<ControlError | null>;
}

export function createPorts(io: CliIo): Ports {
  const settings = createSettings(io.env);
  return {
    io,
    settings,
    api: () => createOperatorClient(settings),
    batches: () => createBatchClient(settings),
    machines: () => createMachineClient(settings),
    rotation: async (target) => (await import('./temporal-rotation.ts')).connectAnyRotation(settings.temporalEnv(), target ?? commandRoot),
    examine: async (pki) =>
      (await import('./doctor/examine.ts')).examine({ settings, pki, nodeVersion: process.versions.node, env: io.env, now: io.now }),
    supportBundle: async ({ pki, findings }) => {
      const [{ createSupportBundle }, { version }] = await Promise.all([import('./doctor/support-bundle.ts'), import('./program.ts')]);
      const program = { version, node: process.versions.node, platform: process.platform, arch: process.arch };
      return createSupportBundle({ settings, env: io.env, pki, findings, program, now: io.now() });
    },
    runFailure: async (workflowId) => (await import('./run-failure.ts')).findRunFailure(settings.temporalEnv(), workflowId),
    stuckWorkflows: async () => {
      const [{ connectTemporal }, { createOperatorWorkflows }] = await Promise.all([
        import('./temporal.ts'),
        import('../api/temporal-workflows.ts'),
      ]);
      const session = await connectTemporal(settings.temporalEnv());
      try {
        return await createOperatorWorkflows(async () => session.client, io.now).listStuck();
      } finally {
        await session.close();
      }
    },
  };
}
