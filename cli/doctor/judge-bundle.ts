/** The key bundle, as doctor judges it (DOC-001 to DOC-008, DOC-014). Pure. */
import { about } from '../../domain/rotation/gates.ts';
import type { RotationInProgress } from '../../domain/rotation/stages.ts';
import { day, showInstant } from '../../domain/time.ts';
import { openBundle, type PublicBundle, readPublicBundle } from '../../pki/bundle/index.ts';
import { error, type Finding, info, messageOf, ok, warning } from './finding.ts';

export interface BundleFacts {
  /** Where it was read from, for messages. */
  readonly source: string;
  /** The document, or why it could not be read. */
  readonly text: string | Error;
  readonly secret: string | null;
  readonly now: number;
  /** From the database; null when it does not answer. */
  readonly fleet: { readonly connected: number; readonly behind: number; readonly version: number } | null;
}

export interface JudgedBundle {
  readonly findings: readonly Finding[];
  /** null when it cannot be parsed. */
  readonly bundle: PublicBundle | null;
}

export function judgeBundle(facts: BundleFacts): JudgedBundle {
  const { source, text } = facts;
  const unreadable = (message: string): JudgedBundle => ({
    bundle: null,
    findings: [
      error(
        'pki.unreadable',
        `the key bundle ${source} cannot be read: ${message}`,
        'restore it from a backup; a new deployment: better-compute pki init',
      ),
    ],
  });
  if (typeof text !== 'string') return unreadable(messageOf(text));
  let bundle: PublicBundle;
  try {
    bundle = readPublicBundle(text);
  } catch (cause) {
    return unreadable(messageOf(cause));
  }
  const findings = [judgeSeal(text, facts), ...judgeAuthorities(bundle, facts.now), ...judgeRotation(bundle, facts)];
  return { bundle, findings };
}

function judgeSeal(text: string, { source, secret }: BundleFacts): Finding {
  if (secret === null) {
    return warning(
      'pki.unchecked',
      `the key bundle ${source} was not checked against its seal`,
      'set BETTER_COMPUTE_SECRET and run doctor again',
    );
  }
  try {
    openBundle(text, { secret });
    return ok('pki.bundle', `the key bundle ${source} opens with this deployment's secret`);
  } catch (cause) {
    return error(
      'pki.unseal',
      `the key bundle ${source} does not open: ${messageOf(cause)}`,
      'use the secret it was sealed with, or restore the bundle from a backup',
    );
  }
}

const authorities = ['rootCa', 'nodeCa', 'servingCa', 'internalCa'] as const;
const spokenNames = Object.freeze({ rootCa: 'root CA', nodeCa: 'node CA', servingCa: 'serving CA', internalCa: 'internal CA' });
const warnBeforeMs = 30 * day;

function judgeAuthorities(bundle: PublicBundle, now: number): Finding[] {
  return authorities.flatMap((name) => {
    const { notAfter } = bundle[name].certificate;
    const fix =
      name === 'rootCa'
        ? 'replace the root: docs/runbooks/keys-and-their-ends.md'
        : `better-compute pki renew-ca --ca ${name.replace('Ca', '')}`;
    // The second of notAfter still counts, for certificates know no fractions.
    if (Math.floor(now / 1_000) * 1_000 > notAfter)
      return [error('pki.ca-expired', `the ${spokenNames[name]} expired at ${showInstant(notAfter)}`, fix)];
    if (notAfter - now <= warnBeforeMs) {
      return [
        warning(
          'pki.ca-expiring',
          `the ${spokenNames[name]} expires at ${showInstant(notAfter)} (in ${about(Math.max(0, notAfter - now))})`,
          fix,
        ),
      ];
    }
    return [];
  });
}

function judgeRotation(bundle: PublicBundle, facts: BundleFacts): Finding[] {
  const { rotation } = bundle.commandRoots;
  if (rotation === null) return [];
  const stage = rotation.stage === 'added' ? added(facts) : switched(rotation, facts);
  return [info('pki.rotation', stage.message, stage.fix)];
}

function added({ fleet }: BundleFacts): { message: string; fix: string } {
  const held =
    fleet === null
      ? 'how many nodes hold it is not known, the database does not answer'
      : `${fleet.connected - fleet.behind} of ${fleet.connected} connected node(s) have trust version ${fleet.version}`;
  return {
    message: `a rotation is half done: a new root is published but not signing yet; ${held}`,
    fix: 'better-compute rotation status; by hand: run --stage switch once every daemon has the trust version',
  };
}

function switched(rotation: RotationInProgress, { now }: BundleFacts): { message: string; fix: string } {
  const since = rotation.switchedAt === null ? '' : `, switched ${about(Math.max(0, now - rotation.switchedAt))} ago`;
  return {
    message: `a rotation is half done: a former root is still trusted${since}`,
    fix: 'better-compute rotation status; by hand: run --stage drop at least 24 hours after the switch',
  };
}
