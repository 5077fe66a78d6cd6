/**
 * The string a person carries to a machine: where to join, whom to believe, and the token (JOIN-029). It holds the same pins
 * that `pki show` prints, so it can be compared with it.
 */
import { ControlError } from '../../domain/errors.ts';
import { isSpkiPin, isTrustDomain, parseP256Spki } from '../x509/index.ts';

export interface JoinBundle {
  /** https URL of a gateway. */
  readonly gateway: string;
  /** Name the gateway's certificate carries, where it is not the URL's host. */
  readonly serverName?: string;
  /** sha256/<base64> of the serving CA's SPKI. */
  readonly servingCaPin: string;
  /** SPKI of the JoinService key. */
  readonly joinKey: Uint8Array;
  readonly trustDomain: string;
  readonly token: string;
  /** Lower-case hex SHA-256 of the only first approver set the machine may take (PIN-001); without: as it comes. */
  readonly approverSetSha256?: string;
}

const prefix = 'bcjoin1.';
const maxLength = 16 * 1024;

/** @throws INVALID_INPUT naming the field that is wrong */
export function encodeJoinBundle(bundle: JoinBundle): string {
  const problem = problemOf(bundle);
  if (problem !== null)
    throw new ControlError('INVALID_INPUT', `the join bundle is not valid: ${problem}`, { details: { reason: 'join-bundle' } });
  const { gateway, serverName, servingCaPin, joinKey, trustDomain, token, approverSetSha256 } = bundle;
  const fields = {
    gateway,
    ...(serverName === undefined ? {} : { serverName }),
    servingCaPin,
    joinKey: Buffer.from(joinKey).toString('base64'),
    trustDomain,
    token,
    ...(approverSetSha256 === undefined ? {} : { approverSetSha256 }),
  };
  return prefix + Buffer.from(JSON.stringify(fields), 'utf8').toString('base64url');
}

/** @throws MALFORMED saying what is wrong, never repeating the token */
export function parseJoinBundle(text: string): JoinBundle {
  const trimmed = text.trim();
  if (!trimmed.startsWith(prefix) || trimmed.length > maxLength) throw malformed(`it must start with ${prefix}`);
  const fields = parseFields(trimmed.slice(prefix.length));
  const { gateway, serverName, servingCaPin, joinKey, trustDomain, token, approverSetSha256, ...unknown } = fields;
  const stray = Object.keys(unknown);
  if (stray.length > 0) throw malformed(`it has the unknown field ${stray[0]}`);
  const optional = {
    ...(serverName === undefined ? {} : { serverName }),
    ...(approverSetSha256 === undefined ? {} : { approverSetSha256 }),
  };
  const texts = { gateway, servingCaPin, joinKey, trustDomain, token, ...optional };
  for (const [name, value] of Object.entries(texts)) {
    if (typeof value !== 'string' || value === '') throw malformed(`its ${name} must be text`);
  }
  const bundle = {
    ...(texts as Record<keyof typeof texts, string>),
    joinKey: new Uint8Array(Buffer.from(String(joinKey), 'base64')),
  } as JoinBundle;
  const problem = problemOf(bundle);
  if (problem !== null) throw malformed(problem);
  return bundle;
}

interface Fields {
  readonly gateway?: unknown;
  readonly serverName?: unknown;
  readonly servingCaPin?: unknown;
  readonly joinKey?: unknown;
  readonly trustDomain?: unknown;
  readonly token?: unknown;
  readonly approverSetSha256?: unknown;
}

function parseFields(encoded: string): Fields {
  const bytes = Buffer.from(encoded, 'base64url');
  if (bytes.toString('base64url') !== encoded) throw malformed('it is not base64url (was all of it copied?)');
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Falls through to the one refusal.
  }
  throw malformed('it does not hold JSON (was all of it copied?)');
}

export const approverSetPinForm = '64 lower-case hex digits, as pki trust-version prints them';

export const isApproverSetPin = (text: string): boolean => /^[0-9a-f]{64}$/.test(text);

/** What is wrong with a join bundle's fields; null when nothing is. */
export function problemOf({ gateway, servingCaPin, joinKey, trustDomain, token, approverSetSha256 }: JoinBundle): string | null {
  if (!isHttpsUrl(gateway)) return 'its gateway must be an https URL without a path';
  if (!isSpkiPin(servingCaPin)) return 'its servingCaPin must be sha256/<base64>';
  if (!isP256(joinKey)) return 'its joinKey must be a P-256 public key';
  if (!isTrustDomain(trustDomain)) return 'its trustDomain is not a trust domain';
  if (approverSetSha256 !== undefined && !isApproverSetPin(approverSetSha256)) return `its approverSetSha256 must be ${approverSetPinForm}`;
  return token.startsWith('bcj1.') ? null : 'its token must start with bcj1.';
}

function isHttpsUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && url.protocol === 'https:' && url.pathname === '/' && url.search === '' && url.hash === '' && url.username === '';
}

function isP256(spki: Uint8Array): boolean {
  try {
    return parseP256Spki(spki).length > 0;
  } catch {
    return false;
  }
}

const malformed = (what: string): ControlError =>
  new ControlError('MALFORMED', `the join bundle is not one: ${what}`, { details: { reason: 'join-bundle' } });
