/** The rotation's activities that need no key: they read the fleet's state and write down what operators decide. */
import { ControlError } from '../domain/errors.ts';
import { assertOverrideApproved, type OverrideApproval } from '../services/override-approval.ts';
import { translated } from './failures.ts';
import { currentWait } from './not-yet.ts';
import { answer, type GateName, type GateReport, judgeNodes, readOverrides } from './rotation-gates.ts';
import type { OverrideRow, RotationControlPorts } from './rotation-ports.ts';

export interface AwaitFleetInput {
  readonly rotationId: string;
  readonly gate: GateName;
  readonly version: number;
  readonly patienceMs: number | null;
}

export interface RecordOverrideInput {
  readonly rotationId: string;
  readonly kind: OverrideRow['kind'];
  readonly subject: string;
  readonly actor: string;
  readonly reason: string;
  readonly approvals?: readonly OverrideApproval[];
}

export interface RotationControlActivities {
  awaitFleet(input: AwaitFleetInput): Promise<GateReport>;
  recordOverride(input: RecordOverrideInput): Promise<OverrideRow>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export function createRotationControlActivities(ports: RotationControlPorts): RotationControlActivities {
  return translated<RotationControlActivities>({
    async awaitFleet({ rotationId, gate, version, patienceMs }) {
      const overrides = await readOverrides(ports, rotationId);
      const judged = await judgeNodes(ports, { version, gate, overrides });
      return answer(judged, { wait: currentWait(), patienceMs, now: ports.now() });
    },

    /** Before it takes effect: who, why, who approved, and whom a force leaves behind (H-08). */
    async recordOverride({ rotationId, kind, subject, actor, reason, approvals = [] }) {
      if (kind === 'exclude' && !(await ports.overrides.nodeExists(subject))) {
        throw new ControlError('NOT_FOUND', `no node ${subject} is known`, { details: { reason: 'unknown-node' } });
      }
      const approvedBy = await assertOverrideApproved(ports.quorum, { rotationId, kind, subject, reason, approvals });
      const details = { approvedBy: [...approvedBy], ...(kind === 'force' ? await leftBehind(ports, rotationId) : {}) };
      return ports.overrides.recordOverride({ rotationId, override: { kind, subject, actor, reason }, details });
    },
  });
}

async function leftBehind(ports: RotationControlPorts, rotationId: string): Promise<Record<string, unknown>> {
  const published = await ports.facts.publication();
  const version = published?.version ?? 0;
  const { excluded } = await readOverrides(ports, rotationId);
  const facts = await ports.facts.fleet({ version, excluded });
  const nodes = (await ports.facts.connectedVersions()).filter((node) => (node.trustVersion ?? 0) < version).map((node) => node.nodeId);
  return { trustVersion: version, connected: facts.connected, behind: facts.behind, nodesLeftBehind: nodes };
}
