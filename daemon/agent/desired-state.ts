/**
 * Desired state as a daemon takes it (SPEC-010, SKEW-038): signed under a held root, for this node, of a newer generation. A section it
 * does not know is reported as unsupported, never guessed at.
 */
import { ControlError } from '../../domain/errors.ts';
import { verifyDesiredState } from '../../pki/envelope/index.ts';
import type { HeldTrust } from '../../pki/trust/index.ts';
import { type DesiredState, decodeMessage, type NodeSpec, NodeSpecSchema, SectionState } from '../../proto/index.ts';
import { credentialFiles } from '../credentials/sections.ts';

export interface AppliedSpec {
  readonly generation: bigint;
  /** An encoded NodeSpec. */
  readonly spec: Uint8Array;
}

export const noSpec: AppliedSpec = Object.freeze({ generation: 0n, spec: new Uint8Array() });

export interface SectionReport {
  readonly section: string;
  readonly state: SectionState;
  readonly detail: string;
}

/** undefined when it is not newer than what is applied. @throws as verifyDesiredState; MALFORMED for a spec that does not decode */
export function judgeDesiredState(
  applied: AppliedSpec,
  desired: DesiredState,
  at: { held: HeldTrust; nodeId: string; now: number },
): AppliedSpec | undefined {
  const { held, nodeId, now } = at;
  const { body } = verifyDesiredState(desired, {
    roots: held.roots,
    required: held.signaturesRequired,
    trustDomain: held.trustDomain,
    nodeId,
    now,
  });
  if (body.generation <= applied.generation) return undefined;
  decodeSpec(body.spec);
  return { generation: body.generation, spec: body.spec };
}

export function decodeSpec(spec: Uint8Array): NodeSpec {
  try {
    return decodeMessage(NodeSpecSchema, spec, 'desiredStateBody');
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the node spec does not decode', { cause, details: { reason: 'node-spec' } });
  }
}

const defaultStatusIntervalMs = 300_000;

/** Between two status reports when nothing changed; they go out with a heartbeat. */
export function statusIntervalMs(applied: AppliedSpec | undefined): number {
  const seconds = applied === undefined ? 0 : (decodeSpec(applied.spec).daemon?.statusIntervalSeconds ?? 0);
  return seconds === 0 ? defaultStatusIntervalMs : seconds * 1_000;
}

/** What a daemon made of a section that it acts on. */
export interface SectionOutcome {
  readonly isApplied: boolean;
  /** For people. */
  readonly detail: string;
}

export interface SectionOutcomes {
  /** Absent where nothing is done about logins. */
  readonly access?: SectionOutcome | undefined;
  /** By section; absent where the machine has no folder for credentials. */
  readonly credentials?: ReadonlyMap<string, SectionOutcome> | undefined;
}

/** What becomes of each section; sections of a newer protocol show as unknown fields. */
export function sectionReports(spec: NodeSpec, { access, credentials }: SectionOutcomes = {}): SectionReport[] {
  const reports: SectionReport[] = [];
  if (spec.daemon !== undefined) reports.push({ section: 'daemon', state: SectionState.APPLIED, detail: '' });
  if (spec.access !== undefined) reports.push({ section: 'access', ...accessReport(access) });
  for (const { section, refOf } of credentialFiles)
    if (refOf(spec) !== undefined) reports.push({ section, ...credentialReport(credentials, section) });
  for (const { no } of spec.$unknown ?? [])
    reports.push({ section: `field-${no}`, state: SectionState.UNSUPPORTED, detail: 'this daemon does not know the section' });
  return reports;
}

function credentialReport(outcomes: SectionOutcomes['credentials'], section: string): Omit<SectionReport, 'section'> {
  if (outcomes === undefined)
    return { state: SectionState.UNSUPPORTED, detail: 'the configuration of this daemon names no credentialsFolder' };
  const { isApplied, detail } = outcomes.get(section) ?? { isApplied: false, detail: 'its secret was not asked for yet' };
  return { state: isApplied ? SectionState.APPLIED : SectionState.FAILED, detail };
}

/** Without a folder for sshd nothing was done, and saying otherwise would let people believe in a revocation. */
function accessReport(access: SectionOutcome | undefined): Omit<SectionReport, 'section'> {
  if (access === undefined) return { state: SectionState.UNSUPPORTED, detail: 'the configuration of this daemon names no sshFolder' };
  return { state: access.isApplied ? SectionState.APPLIED : SectionState.FAILED, detail: access.detail };
}
