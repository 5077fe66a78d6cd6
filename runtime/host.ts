/**
 * A gateway's host in code (TLS-002 to TLS-006, TLS-020): which files it presents, on which terms, in which region.
 *
 *   export const host = defineHost(() => ({ gateway: { region: 'eu-1', tls: { ciphers }, tlsFiles: { key, cert, ca } } }));
 *
 * BETTER_COMPUTE_HOST_MODULE names the module; what it says wins over the environment, what it leaves out comes from there.
 * Options are judged whole before anything listens: every problem is named.
 */
import { pathToFileURL } from 'node:url';
import { z } from 'zod';
import { ControlError } from '../domain/errors.ts';
import { nearestName } from './nearest.ts';

const path = z.string().min(1, 'must be a path');
const files = z.strictObject({ key: path, cert: path, ca: path, intervalMs: z.int().min(1).optional() });

/** Of the daemon listener, beside key, certificate and authorities; client certificates and tickets are not for choice. */
const tls = z.strictObject({
  minVersion: z.enum(['TLSv1.3']).optional(),
  maxVersion: z.enum(['TLSv1.3']).optional(),
  ciphers: z.string().min(1).optional(),
  sigalgs: z.string().min(1).optional(),
});

const hostOptions = z.strictObject({
  gateway: z.strictObject({
    region: z.string().optional(),
    tls: tls.optional(),
    tlsFiles: files.optional(),
    internal: z.strictObject({ tlsFiles: files }).optional(),
  }),
});

export type HostOptions = z.input<typeof hostOptions>;
export type GatewayHost = z.output<typeof hostOptions>['gateway'];
export type HostTlsFiles = z.output<typeof files>;

const marker = Symbol.for('better-compute.host');

export interface Host {
  readonly [marker]: () => HostOptions | Promise<HostOptions>;
}

/** Marks options as a host's. Nothing is evaluated before `loadHost`. */
export const defineHost = (options: () => HostOptions | Promise<HostOptions>): Host => Object.freeze({ [marker]: options });

/**
 * Loads the export `host` of the module at `file` and judges its options.
 *
 * @throws INVALID_CONFIG when there is none, or naming every option that is missing, unknown or of the wrong kind
 */
export async function loadHost(file: string): Promise<GatewayHost> {
  const evaluate = ((await load(file)) as Partial<Host> | undefined)?.[marker];
  if (typeof evaluate !== 'function')
    throw invalid(file, 'no-host', 'it exports no host: export const host = defineHost(() => ({ gateway: { … } }))');
  const parsed = hostOptions.safeParse(await evaluate());
  if (parsed.success) return parsed.data.gateway;
  throw invalid(file, 'options', parsed.error.issues.flatMap(problemOf).join('; '));
}

async function load(file: string): Promise<unknown> {
  try {
    return ((await import(pathToFileURL(file).href)) as { host?: unknown }).host;
  } catch (cause) {
    throw invalid(file, 'no-module', `it does not load: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
}

const invalid = (file: string, reason: string, message: string): ControlError =>
  new ControlError('INVALID_CONFIG', `the host module ${file} (BETTER_COMPUTE_HOST_MODULE) is not valid: ${message}`, {
    details: { reason },
  });

const known = ['gateway', 'region', 'tls', 'tlsFiles', 'internal', 'key', 'cert', 'ca', 'intervalMs', ...Object.keys(tls.shape)];

function problemOf(issue: z.core.$ZodIssue): string[] {
  const at = ['host', ...issue.path.map(String)].join('.');
  if (issue.code !== 'unrecognized_keys') return [`${at}: ${issue.message}`];
  return issue.keys.map((key) => {
    const nearest = nearestName(key, known);
    return `${at}.${key} is no option${nearest === null ? '' : `: did you mean ${nearest}?`}`;
  });
}
