/** One connection to Temporal for one command, with the deployment's codec, so that what workers encrypted is readable here. */
import { Client, Connection, type ConnectionOptions } from '@temporalio/client';
import { ControlError } from '../domain/errors.ts';
import { createDataConverter } from '../runtime/payload-codec.ts';
import { temporalConnectionOptions } from '../runtime/temporal.ts';

export interface TemporalSession {
  readonly client: Client;
  readonly address: string;
  close(): Promise<void>;
}

const connectWithinMs = 5_000;

/** @throws UNAVAILABLE naming the address */
export async function connectTemporal(env: NodeJS.ProcessEnv): Promise<TemporalSession> {
  const { connectionOptions, namespace } = temporalConnectionOptions(env);
  const dataConverter = createDataConverter(env['BETTER_COMPUTE_CODEC_KEY'] || undefined);
  const connection = await connect(connectionOptions);
  return {
    client: new Client({ connection, namespace, dataConverter }),
    address: connectionOptions.address,
    close: () => connection.close(),
  };
}

async function connect(options: ConnectionOptions & { address: string }): Promise<Connection> {
  try {
    return await Connection.connect({ ...options, connectTimeout: connectWithinMs });
  } catch (cause) {
    throw new ControlError('UNAVAILABLE', `Temporal at ${options.address} does not answer`, {
      details: {
        reason: 'temporal-unreachable',
        hint: 'is the stack up? TEMPORAL_ADDRESS or a temporal.toml profile names another server',
      },
      cause,
    });
  }
}
