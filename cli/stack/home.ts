/** The state folder: what lies where, and with which mode. */
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';

export interface StackHome {
  readonly root: string;
  readonly secret: string;
  readonly bundle: string;
  readonly tls: string;
  readonly operatorToken: string;
  readonly nodes: string;
  readonly logs: string;
  readonly run: string;
  /** Names the pid of the running stack. */
  readonly lock: string;
  /** A profile for the Temporal CLI: TEMPORAL_CONFIG_FILE. */
  readonly temporalProfile: string;
  /** Ports of the last start, taken again by the next. */
  readonly ports: string;
}

export function stackHome(env: NodeJS.ProcessEnv): StackHome {
  const root = resolve(env['BETTER_COMPUTE_HOME'] || '.better-compute');
  return {
    root,
    secret: join(root, 'secret'),
    bundle: resolve(env['BETTER_COMPUTE_PKI'] || join(root, 'pki.json')),
    tls: resolve(env['BETTER_COMPUTE_TLS'] || join(root, 'tls')),
    operatorToken: join(root, 'operator.token'),
    nodes: join(root, 'nodes'),
    logs: join(root, 'logs'),
    run: join(root, 'run'),
    lock: join(root, 'stack.lock'),
    temporalProfile: join(root, 'temporal.toml'),
    ports: join(root, 'ports.json'),
  };
}

/** The folder itself can be passed through, because the database runs as an account of its own; everything in it is closed. */
export function prepareHome(home: StackHome): void {
  mkdirSync(home.root, { recursive: true, mode: 0o711 });
  for (const folder of [home.tls, home.nodes, home.logs, home.run]) mkdirSync(folder, { recursive: true, mode: 0o700 });
}
