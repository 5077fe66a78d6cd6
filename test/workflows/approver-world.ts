/** A deployment's approver set in memory, for the activities that change it: the real signatures, a fleet that takes what is published. */
import type { ApproverSetPorts, ApproverSetSigningPorts } from '../../activities/approver-set-ports.ts';
import type { OverrideRow } from '../../activities/rotation-ports.ts';
import { ControlError } from '../../domain/errors.ts';
import { verifyApproverSetChange } from '../../pki/quorum/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { trustDomain } from './approvers.ts';

export class ApproverWorld implements ApproverSetPorts, ApproverSetSigningPorts {
  published$: QuorumFields;
  introduced$: QuorumFields;
  version = 1;
  /** The api publishes what is stored. */
  publishes = true;
  /** Node → the set it enforces; one that is not obedient keeps its own. */
  readonly nodes = new Map<string, { set: QuorumFields; obedient: boolean }>();
  readonly overrideRows = new Map<string, OverrideRow[]>();
  readonly audited: { action: string; subject: string; details: unknown }[] = [];
  readonly stored: number[] = [];
  readonly evidences: { rotationId: string; epoch: number; actor: string }[] = [];
  before: (call: string) => void = () => {};
  now = Date.now;

  constructor(set: QuorumFields = noQuorum, nodes: readonly string[] = ['node-1', 'node-2']) {
    this.published$ = set;
    this.introduced$ = set;
    for (const id of nodes) this.nodes.set(id, { set, obedient: true });
  }

  follow(): void {
    if (this.publishes && this.published$ !== this.introduced$) {
      this.published$ = this.introduced$;
      this.version += 1;
    }
    for (const node of this.nodes.values()) if (node.obedient) node.set = this.published$;
  }

  readonly quorum: ApproverSetPorts['quorum'] = { published: async () => this.published$, trustDomain: () => trustDomain };

  readonly sets: ApproverSetPorts['sets'] = {
    published: async () => {
      this.before('published');
      this.follow();
      return { quorum: this.published$, version: this.version };
    },
    introduced: async () => this.introduced$,
    store: async ({ quorum }) => {
      this.before('store');
      if (Number(quorum.approverSetEpoch) === Number(this.introduced$.approverSetEpoch)) return;
      const epoch = Number(quorum.approverSetEpoch);
      const { problem } = verifyApproverSetChange({
        from: this.introduced$,
        to: quorum,
        epoch,
        signatures: quorum.approverSetSignatures,
        trustDomain,
      });
      if (problem !== null) throw new ControlError('INVALID_STATE', problem, { details: { reason: 'approver-set-unsigned' } });
      this.introduced$ = quorum;
      this.stored.push(epoch);
      this.before('store.done');
    },
    fleet: async ({ epoch, sha256, excluded }) => {
      this.before('fleet');
      this.follow();
      const counted = [...this.nodes].filter(([id]) => !excluded.includes(id));
      const holds = ({ set }: { set: QuorumFields }): boolean =>
        set.approverKeys.length === 0 ? sha256 === null : approverSetDigest(set) === sha256 && Number(set.approverSetEpoch) === epoch;
      const behind = counted.filter(([, node]) => !holds(node));
      return {
        connected: counted.length,
        behind: behind.length,
        sample: behind.map(([nodeId, { set }]) => ({ nodeId, epoch: set.approverKeys.length === 0 ? null : Number(set.approverSetEpoch) })),
        lastPresenceWriteAt: counted.length === 0 ? null : this.now(),
      };
    },
    clock: async () => this.now(),
  };

  readonly reads: ApproverSetPorts['reads'] = { overrides: async (rotationId) => this.overrideRows.get(rotationId) ?? [] };

  readonly overrides: ApproverSetPorts['overrides'] = {
    nodeExists: async (nodeId) => this.nodes.has(nodeId),
    recordOverride: async ({ rotationId, override, details }) => {
      const row = { ...override, at: this.now() };
      this.overrideRows.set(rotationId, [...(this.overrideRows.get(rotationId) ?? []), row]);
      this.audited.push({ action: `rotation.${override.kind}`, subject: override.subject, details });
      return row;
    },
  };

  readonly evidence: ApproverSetSigningPorts['evidence'] = {
    write: async (input) => {
      this.before('evidence');
      if (!this.evidences.some(({ rotationId }) => rotationId === input.rotationId)) this.evidences.push(input);
    },
  };
}
