import type { Command } from 'commander';
import { ControlError } from '../../domain/errors.ts';
import { about } from '../../domain/rotation/gates.ts';
import { showInstant } from '../../domain/time.ts';
import { quorumOf } from '../../pki/quorum/index.ts';
import { approverSetDigest } from '../../pki/trust/index.ts';
import { certificateId, parseCertificate } from '../../pki/x509/index.ts';
import { findEnrolment } from '../enrol/file.ts';
import { findIdentity, getIdentity, type Identity } from '../state/identity.ts';
import { findStatus, type StatusReportFile } from '../state/status-file.ts';
import { type CommonFlags, dataDirOption, examples, isJson } from './common.ts';
import { type EnrolmentFacts, enrolmentFacts, standingOf } from './enrol.ts';
import type { BcdIo } from './io.ts';

export function registerStatus(program: Command, io: BcdIo): void {
  const command = program
    .command('status')
    .description('Who this node is, what it trusts, and how its daemon fares')
    .addOption(dataDirOption())
    .action(async ({ dataDir }: CommonFlags) => {
      const pending = await findEnrolment(dataDir).catch(() => undefined);
      const enrolment = pending === undefined ? null : enrolmentFacts(pending);
      const identity = await identityOf(dataDir, enrolment);
      const report = await findStatus(dataDir);
      const live = report !== undefined && isAlive(report.pid) ? report : undefined;
      if (isJson(command)) return io.out(JSON.stringify({ ...facts(identity, report, live !== undefined), enrolment }, null, 2));
      for (const [name, value] of lines(identity, { report, live, enrolment, now: io.now() })) io.out(`${`${name}:`.padEnd(14)} ${value}`);
    });
  examples(command, ['bcd status', 'bcd status --data-dir ./node-1', 'bcd status --json']);
}

/** @throws NOT_FOUND for a machine that has not joined, saying whether it is about to */
async function identityOf(dataDir: string, enrolment: EnrolmentFacts | null): Promise<Identity> {
  const found = await findIdentity(dataDir);
  if (found !== undefined) return found.identity;
  if (enrolment === null) return (await getIdentity(dataDir)).identity;
  throw new ControlError('NOT_FOUND', `no identity in ${dataDir}: this machine has not joined; enrolment ${standingOf(enrolment)}`, {
    details: { reason: 'not-joined', hint: enrolment.state === 'armed' ? 'bcd run completes it' : 'bcd enrol arm, then bcd run' },
  });
}

/** A process of another user answers EPERM: it is there. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function facts(identity: Identity, report: StatusReportFile | undefined, isRunning: boolean) {
  const leaf = parseCertificate(identity.chain[0] as Uint8Array);
  return {
    nodeId: identity.nodeId,
    siteId: identity.siteId,
    role: identity.role,
    trustDomain: identity.trustDomain,
    generation: identity.generation.toString(),
    gatewayUrl: identity.gatewayUrl,
    trustVersion: identity.trust.version.toString(),
    commandRoots: identity.trust.commandRoots.map(certificateId),
    quorum: quorumFacts(identity, report),
    certificateSerial: leaf.serial,
    certificateNotAfter: showInstant(leaf.notAfter),
    isRunning,
    daemon: report ?? null,
  };
}

/** Which approvers this node enforces, and whether its bundle names others. */
function quorumFacts(identity: Identity, report: StatusReportFile | undefined) {
  const { quorum, trust } = identity;
  const approverSetPin = report?.approverSetPin ?? identity.approverSetPin;
  if (quorum.kind === 'unreadable') return { unreadable: quorum.why, approverSetPin };
  const { approverKeys, approverThreshold, tiers, unbatchedDestructivePerHour } = quorum.fields;
  const published = quorumOf(trust);
  return {
    approvers: approverKeys.length,
    threshold: approverThreshold,
    tiers,
    unbatchedDestructivePerHour,
    approverSetEpoch: quorum.epoch,
    approverSetSha256: approverKeys.length === 0 ? null : approverSetDigest(quorum.fields),
    approverSetPin,
    // The bundle's own set was refused, or is on its way through the changes that led to it.
    lags: approverSetDigest(published) !== approverSetDigest(quorum.fields),
    publishedApproverSetEpoch: trust.approverSetEpoch.toString(),
  };
}

function quorumLines(identity: Identity, report: StatusReportFile | undefined): Line[] {
  const said = quorumFacts(identity, report);
  if ('unreadable' in said) return [['quorum', `UNREADABLE, destructive commands are refused: ${said.unreadable}`]];
  const pin = said.approverSetPin === null ? '' : `, pinned to ${said.approverSetPin.slice(0, 12)}`;
  if (said.approvers === 0) {
    const waits = said.approverSetPin !== null && said.approverSetEpoch === 0;
    return [['quorum', waits ? `destructive commands are refused until the pinned approver set comes${pin}` : `none${pin}`]];
  }
  const held = `${said.threshold} of ${said.approvers} approvers, epoch ${said.approverSetEpoch}, set ${said.approverSetSha256?.slice(0, 12)}${pin}`;
  const cap = `, ${said.unbatchedDestructivePerHour} unbatched an hour`;
  const lag = said.lags ? `; LAGS: the bundle names another set, of epoch ${said.publishedApproverSetEpoch}` : '';
  return [['quorum', `${held}${cap}${lag}`]];
}

type Line = readonly [string, string];

interface Reported {
  readonly report: StatusReportFile | undefined;
  /** Of a daemon that runs. */
  readonly live: StatusReportFile | undefined;
  readonly enrolment: EnrolmentFacts | null;
  readonly now: number;
}

function lines(identity: Identity, at: Reported): Line[] {
  const leaf = parseCertificate(identity.chain[0] as Uint8Array);
  const roots = identity.trust.commandRoots.map((root) => certificateId(root).slice(0, 12));
  return [
    [
      'node',
      `${identity.nodeId} (${identity.role} of site ${identity.siteId}, generation ${identity.generation}) in ${identity.trustDomain}`,
    ],
    ['daemon', daemonLine(at)],
    ...(at.enrolment === null ? [] : [['enrolment', standingOf(at.enrolment)] as const]),
    ['gateway', `${identity.gatewayUrl}${at.live?.gatewayId == null ? '' : `, ${at.live.gatewayId}, epoch ${at.live.epoch}`}`],
    ['trust', `version ${identity.trust.version}, command roots ${roots.length === 0 ? 'none' : roots.join(', ')}`],
    ...quorumLines(identity, at.report),
    [
      'certificate',
      `${leaf.serial}, ${leaf.notAfter < at.now ? 'EXPIRED at' : 'until'} ${showInstant(leaf.notAfter)}${at.live === undefined ? '' : `, renews at ${showInstant(at.live.renewsAtMs)}`}`,
    ],
    ...eventLines(at.report, at.now),
  ];
}

function daemonLine({ report, live, now }: Reported): string {
  if (report === undefined) return 'has not run yet: bcd run';
  if (live === undefined) return `not running (last seen ${about(now - report.updatedAtMs)} ago)`;
  const next = live.nextDialAtMs === null ? '' : `; next try in ${about(Math.max(0, live.nextDialAtMs - now))}`;
  return `${live.state} (pid ${live.pid}): ${live.stateDetail}${next}`;
}

function eventLines(report: StatusReportFile | undefined, now: number): Line[] {
  if (report === undefined) return [];
  const { lastCommand, lastRefusal, lastFailure } = report;
  const ago = (atMs: number): string => `${about(Math.max(0, now - atMs))} ago`;
  return [
    ...(lastCommand === null
      ? []
      : [['last command', `${lastCommand.kind} ${lastCommand.id} ${lastCommand.state} ${ago(lastCommand.atMs)}`] as const]),
    ...(lastRefusal === null ? [] : [['last refusal', `${lastRefusal.reason}: ${lastRefusal.detail} (${ago(lastRefusal.atMs)})`] as const]),
    ...(lastFailure === null ? [] : [['last failure', `${lastFailure.reason}: ${lastFailure.detail} (${ago(lastFailure.atMs)})`] as const]),
  ];
}
