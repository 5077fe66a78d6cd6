/**
 * Whom a machine believes, as its configuration says: the file that `daemon install-script` writes (CLI-020) and `bcd join --pins`
 * reads. It holds no secret. With it a bare token is enough to join, and a join string that names other pins is refused, so
 * whoever hands a machine a token cannot hand it another control plane.
 */
import { ControlError } from '../../domain/errors.ts';
import { spkiPin } from '../x509/index.ts';
import { type JoinBundle, parseJoinBundle, problemOf } from './join-bundle.ts';

export type ControlPlanePins = Omit<JoinBundle, 'token'>;

const format = 'better-compute-pins';
const version = 1;
const maxLength = 16 * 1024;
/** Stands where a token would: the file has none. */
const anyToken = 'bcj1.';

/** The file: one JSON object, the same bytes for the same pins. @throws INVALID_INPUT naming the field that is wrong */
export function encodePinsFile(pins: ControlPlanePins): string {
  const problem = problemOf({ ...pins, token: anyToken });
  if (problem !== null) {
    throw new ControlError('INVALID_INPUT', `the pins are not valid: ${problem}`, { details: { reason: 'pins' } });
  }
  const { trustDomain, gateway, serverName, servingCaPin, joinKey, approverSetSha256 } = pins;
  const fields = {
    format,
    version,
    ...(approverSetSha256 === undefined ? {} : { approverSetSha256 }),
    trustDomain,
    gateway,
    ...(serverName === undefined ? {} : { serverName }),
    servingCaPin,
    joinSigningPin: spkiPin(joinKey),
    joinSigningKey: Buffer.from(joinKey).toString('base64'),
  };
  return `${JSON.stringify(fields, null, 2)}\n`;
}

const needed: readonly string[] = ['trustDomain', 'gateway', 'servingCaPin', 'joinSigningPin', 'joinSigningKey'];
const optional: readonly string[] = ['serverName', 'approverSetSha256'];

/** @throws INVALID_CONFIG saying what is wrong */
export function parsePinsFile(text: string): ControlPlanePins {
  const { format: itsFormat, version: itsVersion, ...texts } = parseFields(text);
  if (itsFormat !== format || itsVersion !== version) throw invalid(`it must have format ${format} and version ${version}`);
  for (const name of new Set([...needed, ...Object.keys(texts)])) {
    if (![...needed, ...optional].includes(name)) throw invalid(`${name} is not one of its fields`);
    if (typeof texts[name] !== 'string') throw invalid(`its ${name} must be text`);
  }
  const { joinSigningPin, joinSigningKey, ...rest } = texts as Readonly<Record<string, string>>;
  const joinKey = new Uint8Array(Buffer.from(String(joinSigningKey), 'base64'));
  const pins = { ...rest, joinKey } as ControlPlanePins;
  const problem = problemOf({ ...pins, token: anyToken });
  if (problem !== null) throw invalid(problem.replace('joinKey', 'joinSigningKey'));
  if (spkiPin(joinKey) !== joinSigningPin) throw invalid('its joinSigningPin is not the one of its joinSigningKey');
  return pins;
}

function parseFields(text: string): Readonly<Record<string, unknown>> {
  if (text.length > maxLength) throw invalid('it is too long');
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Falls through to the one refusal.
  }
  throw invalid('it does not hold a JSON object');
}

const invalid = (what: string): ControlError =>
  new ControlError('INVALID_CONFIG', `the file of pins is not one: ${what}`, {
    details: { reason: 'pins', hint: 'write it again: better-compute daemon install-script' },
  });

/**
 * What to join with, on a machine that has its pins: a bare token, or a join string that agrees with them. Gateway and server name
 * are only where to dial, so the string's are taken.
 *
 * @throws MALFORMED when the text is neither; PERMISSION_DENIED when it is for another control plane
 */
export function joinBundleUnder(pins: ControlPlanePins, text: string): JoinBundle {
  const trimmed = text.trim();
  if (/^bcj1\.[A-Za-z0-9_-]+$/.test(trimmed)) return { ...pins, token: trimmed };
  const bundle = parseJoinBundle(trimmed);
  const differing = [
    ...(bundle.trustDomain === pins.trustDomain ? [] : ['trustDomain']),
    ...(bundle.servingCaPin === pins.servingCaPin ? [] : ['servingCaPin']),
    ...(Buffer.from(bundle.joinKey).equals(pins.joinKey) ? [] : ['joinKey']),
    ...(setPinOf(bundle, pins) === setPinOf(pins, bundle) ? [] : ['approverSetSha256']),
  ];
  if (differing.length === 0)
    return pins.approverSetSha256 === undefined ? bundle : { ...bundle, approverSetSha256: pins.approverSetSha256 };
  throw new ControlError(
    'PERMISSION_DENIED',
    `the join string is for another control plane than this machine's pins: ${differing.join(', ')}`,
    {
      details: {
        reason: 'pins-differ',
        fields: differing,
        hint: "compare both with better-compute pki show; the pins' file is this machine's",
      },
    },
  );
}

/** Either may leave it out; the other's stands then. */
const setPinOf = (one: ControlPlanePins, other: ControlPlanePins): string | undefined => one.approverSetSha256 ?? other.approverSetSha256;
