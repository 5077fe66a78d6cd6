/**
 * Writes the evidence of one stage (H-17), once: a repeated step finds it there. What it says comes from the facts the step
 * was judged on; after a crash between the act and its evidence they are read again, or taken from the document before.
 */
import { dropOpensAt, processLiveWithinMs } from '../domain/rotation/gates.ts';
import { type EvidenceStage, parseStageEvidence, type StageEvidence, type StageFacts } from '../pki/audit/evidence.ts';
import { type Overrides, readOverrides } from './rotation-gates.ts';
import { rootsOf } from './rotation-plan.ts';
import type { RootsView, RotationSigningPorts } from './rotation-ports.ts';

type FleetInput = NonNullable<StageFacts['fleet']>;

export interface StageInput {
  readonly rotationId: string;
  readonly stage: EvidenceStage;
  readonly view: RootsView;
  /** What the gate counted; absent where no gate was asked in this attempt. */
  readonly fleet?: FleetInput;
}

export async function writeEvidence(ports: RotationSigningPorts, input: StageInput): Promise<void> {
  const earlier = (await ports.evidence.read(input.rotationId)).map((row) => parseStageEvidence(row.document));
  if (earlier.some((document) => document.stage === input.stage)) return;
  await ports.evidence.write(await factsOf(ports, input, earlier));
}

/** The connected nodes and what they hold, as a gate for `version` counts them. */
export const readFleetInput = async (ports: RotationSigningPorts, version: number): Promise<FleetInput> => ({
  version,
  nodes: (await ports.facts.connectedVersions()).map((node) => ({ nodeId: node.nodeId, version: node.trustVersion })),
});

async function factsOf(ports: RotationSigningPorts, input: StageInput, earlier: readonly StageEvidence[]): Promise<StageFacts> {
  const { rotationId, stage, view } = input;
  const overrides = await readOverrides(ports, rotationId);
  const published = await ports.facts.publication();
  return {
    trustDomain: view.trustDomain,
    rotationId,
    stage,
    // The database's clock, as the steps are judged by; and the order of the documents in time is the order of the stages.
    at: Math.max(Math.floor(await ports.facts.now()), ...earlier.map((document) => document.at + 1)),
    actor: actorOf(stage, overrides),
    bundle: { digest: view.bundleDigest, generation: view.generation },
    roots: { signing: view.roots.signing, trusted: view.roots.roots.map((root) => root.id), ...plannedRoots(view, rotationId, earlier) },
    publishedVersion: published?.version ?? null,
    fleet: input.fleet ?? (stage === 'switch' ? fleetBefore(earlier) : null),
    processes: stage === 'processes' || stage === 'switch' ? await processesNow(ports) : null,
    overrides: overrides.rows.map(({ kind, subject, actor, reason, at }) => ({ kind, subject, actor, reason, at: Math.floor(at) })),
    times: ports.times,
    overlap: stage === 'drop' ? await overlapOf(ports, view) : null,
  };
}

/** The bundle forgets a rotation when it ends; its first document with both roots does not. */
function plannedRoots(view: RootsView, rotationId: string, earlier: readonly StageEvidence[]): { old: string; new: string | null } {
  const named = earlier.find((document) => document.roots.new !== null)?.roots;
  if (named !== undefined) return { old: named.old, new: named.new };
  const { oldRoot, newRoot } = rootsOf(view.roots, rotationId);
  return { old: oldRoot ?? view.roots.signing, new: newRoot };
}

const fleetBefore = (earlier: readonly StageEvidence[]): FleetInput | null => {
  const fleet = earlier.find((document) => document.stage === 'fleet')?.fleet ?? null;
  return fleet === null ? null : { version: fleet.version, nodes: fleet.nodes };
};

async function processesNow(ports: RotationSigningPorts): Promise<StageFacts['processes']> {
  const processes = await ports.facts.processes();
  const now = await ports.facts.now();
  const live = processes.filter((process) => now - process.lastSeenAt <= processLiveWithinMs);
  return live.map(({ id, kind, bundleDigest, publishedVersionSeen }) => ({ id, kind, bundleDigest, publishedVersionSeen }));
}

async function overlapOf(ports: RotationSigningPorts, view: RootsView): Promise<StageFacts['overlap']> {
  const [removed] = view.roots.removed;
  if (removed === undefined) return null;
  const lastWorkerNotAfter = await ports.facts.lastWorkerNotAfter(removed.id);
  const { switchedAt, forcedReason } = removed;
  return { switchedAt, lastWorkerNotAfter, opensAt: dropOpensAt({ switchedAt, lastWorkerNotAfter }, ports.times), forcedReason };
}

/** An abort is the act of whoever asked for it, a forced switch that of whoever forced it; all else the system's. */
function actorOf(stage: EvidenceStage, overrides: Overrides): string {
  if (stage === 'abort') return overrides.abort?.actor ?? 'system';
  if (stage === 'switch') return overrides.rows.find((row) => row.kind === 'force')?.actor ?? 'system';
  return 'system';
}
