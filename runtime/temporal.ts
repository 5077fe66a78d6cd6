/** Where Temporal is: TEMPORAL_* variables or a temporal.toml profile, as the Temporal CLI reads them; 127.0.0.1:7233 without. */
import { loadClientConnectConfig } from '@temporalio/envconfig';
import type { NativeConnectionOptions } from '@temporalio/worker';
import { ControlError } from '../domain/errors.ts';
import { defaultNamespace } from '../temporal.config.ts';

export interface TemporalTarget {
  /** Fits both Connection.connect and NativeConnection.connect. */
  readonly connectionOptions: NativeConnectionOptions & { address: string };
  readonly namespace: string;
}

/** @throws INVALID_CONFIG when the profile or a variable cannot be read */
export function temporalConnectionOptions(env: NodeJS.ProcessEnv = process.env): TemporalTarget {
  const overrideEnvVars = Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined));
  try {
    const { connectionOptions, namespace } = loadClientConnectConfig({ overrideEnvVars });
    return {
      connectionOptions: { ...connectionOptions, address: connectionOptions.address ?? '127.0.0.1:7233' },
      namespace: namespace ?? defaultNamespace,
    };
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', 'the Temporal connection profile cannot be read (TEMPORAL_* variables or temporal.toml)', {
      details: { reason: 'temporal-profile' },
      cause,
    });
  }
}
