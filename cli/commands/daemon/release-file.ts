/** A signed release as a file: what `daemon sign-release` writes and `daemon upgrade` sends. It holds nothing secret. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ControlError } from '../../../domain/errors.ts';
import type { SignedRelease } from '../../../pki/envelope/index.ts';
import { type DaemonRelease, DaemonReleaseSchema, decodeMessage } from '../../../proto/index.ts';

const format = 'better-compute-release';
const longestFile = 64 * 1024;

const base64 = z.string().regex(/^[A-Za-z0-9+/]+={0,2}$/, 'must be base64');
const schema = z.strictObject({
  format: z.literal(format),
  version: z.literal(1),
  /** For people; what counts is in `release`. */
  bcd: z.string(),
  release: base64,
  kid: z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hex digits'),
  signature: base64,
});

export function encodeReleaseFile({ release, signature }: SignedRelease, bcd: string): string {
  const fields: z.infer<typeof schema> = {
    format,
    version: 1,
    bcd,
    release: Buffer.from(release).toString('base64'),
    kid: signature.kid,
    signature: Buffer.from(signature.sig).toString('base64'),
  };
  return `${JSON.stringify(fields, null, 2)}\n`;
}

export interface ReleaseFile {
  readonly release: DaemonRelease;
  readonly kid: string;
  /** What a daemon.upgrade takes, in protobuf JSON, but for the URL. */
  readonly payload: { readonly release: string; readonly signature: { readonly sig: string; readonly kid: string } };
}

/** Read, and not verified: machines do that, by the keys that they pin. @throws NOT_FOUND; INVALID_INPUT saying what is wrong */
export function readReleaseFile(path: string): ReleaseFile {
  const { release, kid, signature } = fieldsOf(path);
  try {
    const decoded = decodeMessage(DaemonReleaseSchema, new Uint8Array(Buffer.from(release, 'base64')), 'daemonRelease');
    return { release: decoded, kid, payload: { release, signature: { sig: signature, kid } } };
  } catch (cause) {
    throw notOne(path, 'its release does not decode', cause);
  }
}

function fieldsOf(path: string): z.infer<typeof schema> {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, {
      details: { reason: 'no-release-file', hint: 'make one: better-compute daemon sign-release' },
      cause,
    });
  }
  if (text.length > longestFile) throw notOne(path, `it has ${text.length} characters`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw notOne(path, 'it is not JSON', cause);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw notOne(path, parsed.error.issues.map(({ path: at, message }) => `${at.map(String).join('.') || 'content'}: ${message}`).join('; '));
}

const notOne = (path: string, what: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', `${path} is no signed release: ${what}`, {
    details: { reason: 'release-file', hint: 'make one: better-compute daemon sign-release' },
    cause,
  });
