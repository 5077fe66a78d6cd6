import { Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { showInstant } from '../../../domain/time.ts';
import { settleTrustVersion } from '../../../domain/trust/version.ts';
import { type PublicBundle, readPublicBundle } from '../../../pki/bundle/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields, trustContentDigest, trustContentOf } from '../../../pki/trust/index.ts';
import { lagOf } from '../../../services/approver-lag.ts';
import { chooseApproverSet } from '../../../services/approver-sets.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { configuredApprovers } from '../../configured-approvers.ts';
import { writeJson } from '../../io.ts';
import { type Deployment, getDeployment, type NodeTrust, type PkiPorts, type Published } from './deployment.ts';
import { readShown } from './pins-view.ts';
import { quorumOf } from './published-quorum.ts';
import { pkiOption } from './source.ts';

export interface PkiTrustVersionOptions extends CommonOptions {
  readonly pki: string | null;
}

export function newPkiTrustVersion(run: (options: PkiTrustVersionOptions) => Promise<void>): Command {
  const command = new Command('trust-version')
    .description('Compare what the deployment publishes with this key bundle, and say who holds which version')
    .addOption(pkiOption())
    .action((flags: { pki?: string }) => run({ ...commonOptions(command), pki: flags.pki ?? null }));
  return withExamples(command, ['better-compute pki trust-version', 'better-compute pki trust-version --pki /backup/pki.json --json']);
}

/** CLI-060 to CLI-073, C40. */
export async function pkiTrustVersionRun({ pki, json }: PkiTrustVersionOptions, ports: PkiPorts): Promise<void> {
  const floorOption = parseFloor(ports.io.env['BETTER_COMPUTE_TRUST_VERSION']);
  const bundle = readPublicBundle((await readShown(pki, ports)).text);
  const deployment = await getDeployment(ports, 'trust-version', '');
  try {
    const published = await deployment.published();
    if (published === null) {
      throw new ControlError('NOT_FOUND', 'no process has published a trust bundle yet', {
        details: { reason: 'nothing-published', hint: 'it is published when the api starts: better-compute start' },
      });
    }
    const configured = configuredApprovers(ports.io.env);
    const report = await compare({ bundle, published, deployment, floorOption, configured });
    if (json) writeJson(ports.io, report);
    else ports.io.out(lines(report).join('\n'));
  } finally {
    await deployment.close();
  }
}

function parseFloor(text: string | undefined): number {
  if (text === undefined || text === '') return 0;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new ControlError('INVALID_CONFIG', `BETTER_COMPUTE_TRUST_VERSION "${text}" must be a whole number`, {
    details: { reason: 'environment' },
  });
}

export interface TrustVersionReport {
  readonly version: number;
  readonly configurationMatches: boolean;
  readonly nextVersion: number;
  readonly approverSetEpoch: number;
  readonly approverSetSha256: string;
  readonly publishedApproverSetSha256?: string;
  /** Absent before the database records what nodes hold (LAG-015), as the sample. */
  readonly approverSetBehind?: number;
  readonly approverSetSample?: readonly { readonly nodeId: string; readonly epoch: number }[];
  readonly quorumChanged: boolean;
  readonly signQuorumForEpoch?: number;
  readonly connected: number;
  readonly behind: number;
  /** Version → connected nodes that hold it; 0: they do not report one. */
  readonly versions: Readonly<Record<string, number>>;
  /** The five that hold the oldest version. */
  readonly oldest: readonly { readonly nodeId: string; readonly version: number; readonly lastSeenAt: string }[];
}

interface Comparison {
  readonly bundle: PublicBundle;
  readonly published: Published;
  readonly deployment: Deployment;
  readonly floorOption: number;
  /** null: this configuration says nothing about approvers, and what is published stays. */
  readonly configured: QuorumFields | null;
}

async function compare({ bundle, published, deployment, floorOption, configured }: Comparison): Promise<TrustVersionReport> {
  const current = quorumOf(published.body);
  const introduced = await deployment.introducedSet();
  const { quorum } = chooseApproverSet({ configured, published: current, introduced, trustDomain: bundle.trustDomain });
  const digest = trustContentDigest({ ...trustContentOf(bundle), quorum });
  const decision = settleTrustVersion(published, await deployment.earlierVersionOf(digest), {
    digest,
    floor: Math.max(bundle.trustVersion, floorOption),
    explicitFloor: Math.max(floorOption, bundle.republish?.version ?? 0),
  });
  const nodes = await deployment.connected();
  return {
    version: published.version,
    configurationMatches: digest === published.digest,
    nextVersion: decision.version,
    ...quorumReport({ configured, published: current, introduced }),
    ...((await deployment.recordsSets()) ? lagReport(nodes, current) : {}),
    ...fleetReport(published.version, nodes),
  };
}

const sampleSize = 5;

interface Sets {
  readonly configured: QuorumFields | null;
  readonly published: QuorumFields;
  readonly introduced: QuorumFields | null;
}

/** PIN-002, PIN-003: the digest to pin is computed from this configuration's keys, whatever the database says. */
function quorumReport({ configured, published, introduced }: Sets) {
  const [own, publishedDigest] = [approverSetDigest(configured ?? noQuorum), approverSetDigest(published)];
  const epoch = Number(published.approverSetEpoch);
  // Against the set that was introduced properly: an unsigned one that was published is still a change (A-PKI-15).
  const quorumChanged = configured !== null && own !== approverSetDigest(introduced ?? published);
  return {
    approverSetEpoch: epoch,
    approverSetSha256: own,
    ...(own === publishedDigest ? {} : { publishedApproverSetSha256: publishedDigest }),
    quorumChanged,
    ...(quorumChanged ? { signQuorumForEpoch: epoch + 1 } : {}),
  };
}

function lagReport(nodes: readonly NodeTrust[], published: QuorumFields) {
  const sets = nodes.map(({ nodeId, approverSetEpoch: epoch, approverSetSha256: sha256 }) => ({ nodeId, epoch, sha256 }));
  const { behind, sample } = lagOf(sets, published);
  return { approverSetBehind: behind, approverSetSample: sample };
}

function fleetReport(version: number, nodes: readonly NodeTrust[]) {
  const held = nodes
    .map((node) => ({ ...node, version: node.trustVersion ?? 0 }))
    .sort((a, b) => a.version - b.version || (a.nodeId < b.nodeId ? -1 : 1));
  const versions: Record<string, number> = {};
  for (const node of held) versions[node.version] = (versions[node.version] ?? 0) + 1;
  return {
    connected: held.length,
    behind: held.filter((node) => node.version < version).length,
    versions,
    oldest: held
      .slice(0, sampleSize)
      .map((node) => ({ nodeId: node.nodeId, version: node.version, lastSeenAt: showInstant(node.lastSeenAt) })),
  };
}

function lines({ approverSetSample = [], versions, oldest, ...plain }: TrustVersionReport): string[] {
  return [
    ...Object.entries(plain).map(([name, value]) => `${name}: ${value}`),
    ...approverSetSample.map(({ nodeId, epoch }) => `approverSetSample: ${nodeId} at epoch ${epoch}`),
    ...Object.entries(versions).map(([version, count]) => `versions: ${version === '0' ? 'not reported' : version} on ${count} node(s)`),
    ...oldest.map(({ nodeId, version, lastSeenAt }) => `oldest: ${nodeId} at ${version === 0 ? 'none' : version}, last seen ${lastSeenAt}`),
  ];
}
