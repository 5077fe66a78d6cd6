/** What a ramdisk asks of its boot server: POST /v1/assert, JSON. One pair of functions for both sides. */
import { z } from 'zod';
import { ControlError } from '../../../domain/errors.ts';
import { normaliseMac } from '../../../domain/metal/identity.ts';

export interface AssertRequest {
  /** The discovery token's bytes. */
  readonly token: Uint8Array;
  /** Of the CSR's DER; lower-case hex. */
  readonly csrSha256: string;
  readonly macAddress: string;
  /** Of the firmware; lower case, empty when it says none. */
  readonly systemUuid: string;
  /** Of the firmware; empty when it says none. */
  readonly systemSerial: string;
}

export const assertPath = '/v1/assert';
/** The answer's: an encoded SignedDiscoveryAssertion. */
export const assertionType = 'application/octet-stream';
export const assertRequestMaxBytes = 4_096;

/** A secret shorter could be guessed; longer has no use, and no room on a kernel's line. */
export const tokenBytes = Object.freeze({ min: 16, max: 256 });

const printable = (max: number) =>
  z.string().regex(new RegExp(`^[\\x20-\\x7e]{0,${max}}$`), `must be printable ASCII of at most ${max} characters`);

const schema = z.strictObject({
  token: z
    .base64url()
    .transform((text): Uint8Array => new Uint8Array(Buffer.from(text, 'base64url')))
    .refine(
      ({ length }) => length >= tokenBytes.min && length <= tokenBytes.max,
      `must be of ${tokenBytes.min} to ${tokenBytes.max} bytes`,
    ),
  csrSha256: z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hex digits'),
  macAddress: z.string().transform((text, context) => {
    const mac = normaliseMac(text);
    if (mac === null) context.addIssue({ code: 'custom', message: 'must be a MAC address of an interface' });
    return mac ?? '';
  }),
  systemUuid: printable(64).transform((text) => text.trim().toLowerCase()),
  systemSerial: printable(128).transform((text) => text.trim()),
});

export const encodeAssertRequest = ({ token, ...rest }: AssertRequest): string =>
  JSON.stringify({ ...rest, token: Buffer.from(token).toString('base64url') });

/** @throws MALFORMED naming every field that is wrong, and never the token */
export function parseAssertRequest(bytes: Uint8Array): AssertRequest {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw malformed(['it is not JSON']);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw malformed(
    parsed.error.issues.map(
      ({ path, message, code }) =>
        `${path.map(String).join('.') || 'content'}: ${code === 'unrecognized_keys' ? 'has a field that is not known' : message}`,
    ),
  );
}

const malformed = (problems: readonly string[]): ControlError =>
  new ControlError('MALFORMED', `the request for an assertion is wrong: ${problems.slice(0, 8).join('; ')}`, {
    details: { reason: 'assert-request', problems: problems.slice(0, 8) },
  });
