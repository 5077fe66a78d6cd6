/** What the owner of a machine allows: one small JSON file, read once, unknown names refused. */
import { isAbsolute, resolve } from 'node:path';
import { z } from 'zod';
import { ControlError } from '../domain/errors.ts';
import type { ControlPlanePins } from '../pki/enroll/index.ts';
import { listenAddressForm, parseListenAddress } from './imds/address.ts';
import { isUnitName } from './kinds/program.ts';
import { siteSection } from './site/config.ts';
import { readIfPresent } from './state/files.ts';
import { isWebSocketUrl, webSocketUrlForm } from './transport/websocket/url.ts';
import { tunnelSection } from './tunnel/config.ts';
import { isReleaseKey } from './upgrade/release-keys.ts';

const schema = z.strictObject({
  /** systemd units that a command may restart. */
  restartableUnits: z.array(z.string().refine(isUnitName, 'is not a unit name')).default([]),
  /** Folder of the files that sshd of this machine includes; without one, desired state about logins is left alone. */
  sshFolder: z
    .string()
    .regex(/^\/[^\s"'#%]*$/, 'must be an absolute path without spaces, quotes, # and %')
    .optional(),
  /** Folder of the credentials that desired state names for units of this machine; without one, none is asked for. */
  credentialsFolder: z.string().startsWith('/', 'must be an absolute path').exactOptional(),
  /** Name in a logs.collect command → absolute path of a file that may be sent. */
  logFiles: z.record(z.string(), z.string().startsWith('/', 'must be an absolute path')).default({}),
  /** Folder of the plugins that driver.invoke may call (docs/plugins.md); without one, none is. */
  pluginsFolder: z
    .string()
    .refine((text) => isAbsolute(text) && resolve(text) === text, 'must be an absolute path without detours')
    .exactOptional(),
  /** The only first approver set this machine takes (PIN-005); goes before the one it was joined with. */
  approverSetSha256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hex digits, as pki trust-version prints them')
    .exactOptional(),
  /** Who may publish the program of this machine (SKEW-016); without a key, it is replaced by hand alone (SKEW-017). */
  update: z
    .strictObject({
      /** SPKI of P-256 keys, base64. */
      releaseKeys: z.array(
        z
          .string()
          .refine(isReleaseKey, 'is no P-256 public key: base64 of its SPKI, as openssl pkey -pubout -outform DER | base64 -w0 writes it'),
      ),
    })
    .exactOptional(),
  /** The metadata service for the instances of this machine (WID-040); without it nothing listens. */
  imds: z
    .strictObject({
      listen: z.string().refine((text) => parseListenAddress(text) !== null, `must be ${listenAddressForm}`),
    })
    .exactOptional(),
  /** For a network whose proxy takes TLS apart: the session goes over a WebSocket (WS-017). Not for a ramdisk. */
  websocket: z
    .strictObject({
      url: z.string().refine(isWebSocketUrl, webSocketUrlForm),
      /** PEM of the authorities of the proxy; they are believed for the transport alone (WS-022). */
      proxyCaFile: z.string().startsWith('/', 'must be an absolute path').exactOptional(),
    })
    .exactOptional(),
  /** What a site agent does for the machines of its site; nothing to a daemon of another role. */
  site: siteSection.exactOptional(),
  /** What tunnels of callers may lead to on this machine; without it, to nothing. */
  tunnels: tunnelSection.exactOptional(),
});

export type DaemonConfig = Readonly<z.infer<typeof schema>>;

/** @throws INVALID_CONFIG with all problems at once; NOT_FOUND when a named file is missing */
export async function readDaemonConfig(path: string, { mustExist }: { mustExist: boolean }): Promise<DaemonConfig> {
  const content = await readIfPresent(path, 256 * 1024);
  if (content === undefined) {
    if (mustExist) throw new ControlError('NOT_FOUND', `there is no configuration file ${path}`, { details: { reason: 'no-config' } });
    return Object.freeze(schema.parse({}));
  }
  return parseDaemonConfig(path, content.toString('utf8'));
}

export function parseDaemonConfig(path: string, text: string): DaemonConfig {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', `${path} is not JSON`, { cause, details: { reason: 'config' } });
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return Object.freeze(parsed.data);
  const problems = parsed.error.issues.map((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((key) => `"${key}" is not a setting (settings: ${Object.keys(schema.shape).join(', ')})`).join('; ')
      : `${issue.path.map(String).join('.') || 'the content'}: ${issue.message}`,
  );
  throw new ControlError('INVALID_CONFIG', `${path}: ${problems.join('; ')}`, { details: { reason: 'config', problems } });
}

/**
 * With the approver set that the machine's pins name (PIN-005).
 *
 * @throws INVALID_CONFIG when the owner's own file names another: nobody can tell which of the two is meant
 */
export function underPins(config: DaemonConfig, { approverSetSha256 }: ControlPlanePins, path: string): DaemonConfig {
  if (approverSetSha256 === undefined || approverSetSha256 === config.approverSetSha256) return config;
  if (config.approverSetSha256 === undefined) return Object.freeze({ ...config, approverSetSha256 });
  throw new ControlError(
    'INVALID_CONFIG',
    `approverSetSha256 is ${config.approverSetSha256} in the configuration and ${approverSetSha256} in ${path}: they must agree`,
    { details: { reason: 'approver-set-pin' } },
  );
}
