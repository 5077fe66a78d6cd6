/**
 * What a machine under a quorum answers to honest and hostile deliveries: one table, played on bcd and on the simulated fleet
 * (DMN-001). Each scenario starts from a fresh machine that holds the two-of-three set of `cast`, unless it says otherwise.
 */
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { hour, minute } from '../../domain/time.ts';
import { type Command, CommandBodySchema } from '../../proto/index.ts';
import {
  type Approver,
  type BatchInit,
  batchOf,
  createApprover,
  malleated,
  memberOf,
  quorumOfApprovers,
  reboot,
  rebootDigest,
  signedSet,
  type TestBatch,
} from '../harness/approvers.ts';
import { type CommandInit, commandOf, type TestDeployment, type TrustInit } from '../harness/deployment.ts';
import type { MachineInit, QuorumMachine, Verdict } from './quorum-machine.ts';

export interface Cast {
  readonly deployment: TestDeployment;
  readonly anna: Approver;
  readonly ben: Approver;
  readonly cleo: Approver;
  /** Anna, Ben and Cleo, two must sign, epoch 1. */
  readonly trust: TrustInit;
  batch(init?: Partial<BatchInit>): Promise<TestBatch>;
  member(batch: TestBatch, init?: CommandInit): Promise<Command>;
}

export function createCast(deployment: TestDeployment): Cast {
  const [anna, ben, cleo] = [createApprover(), createApprover(), createApprover()];
  return {
    deployment,
    anna,
    ben,
    cleo,
    trust: { version: 1, roots: [deployment.rootA], quorum: quorumOfApprovers({ approvers: [anna, ben, cleo] }) },
    batch: (init = {}) => batchOf(deployment, { by: [anna, ben], ...init }),
    member: (batch, init) => memberOf(deployment, batch, init),
  };
}

export interface Played {
  readonly cast: Cast;
  readonly machine: QuorumMachine;
  /** Asserts: accepted. */
  accepts(command: Command, why?: string): Promise<void>;
  /** Asserts: rejected BATCH_UNAPPROVED with this word and this detail. */
  refuses(command: Command, reason: string, detail?: RegExp): Promise<void>;
  /** Asserts: rejected with this protocol reason. */
  rejects(command: Command, reject: string): Promise<Verdict>;
  equal(actual: unknown, expected: unknown, what?: string): void;
}

export interface Scenario {
  readonly title: string;
  readonly machine?: (cast: Cast) => MachineInit;
  readonly play: (played: Played) => Promise<void>;
}

const withTrust = (change: (cast: Cast) => Partial<TrustInit>) => (cast: Cast) => ({ trust: { ...cast.trust, ...change(cast) } });

const others = (count: number) => Array.from({ length: count }, (_, n) => reboot(`node-${n + 2}`));

export const scenarios: readonly Scenario[] = [
  {
    title: 'DMN-003 asks for a batch only where its own table says that a kind destroys work',
    async play({ cast, accepts, rejects }) {
      await accepts(await commandOf(cast.deployment, { kind: 'inventory.refresh' }));
      await rejects(await commandOf(cast.deployment, { kind: 'node.reboot' }), 'UNBATCHED_LIMIT');
    },
  },
  {
    title: 'QUO-001 QUO-003 DMN-004 DMN-011 runs a member of a batch that enough approvers signed, and no other',
    async play({ cast, accepts, refuses }) {
      const alone = await cast.batch({ batchId: 'alone', by: [cast.anna] });
      await refuses(await cast.member(alone), 'too-few-approvals', /1 of 2 approvals for a scope of 1/);
      const batch = await cast.batch();
      const stripped = await cast.member(batch);
      delete stripped.batchApproval;
      await refuses(stripped, 'no-approval', /batch-1 comes without its approval/);
      await accepts(await cast.member(batch));
    },
  },
  {
    title: 'DMN-005 asks as many as the tier of the scope says, and the top threshold above every tier',
    machine: withTrust(({ anna, ben, cleo }) => ({
      quorum: quorumOfApprovers({ approvers: [anna, ben, cleo], tiers: [{ maxScopeSize: 5, threshold: 1 }] }),
    })),
    async play({ cast, accepts, refuses }) {
      const six = await cast.batch({ batchId: 'six', leaves: [reboot('node-1'), ...others(5)], by: [cast.anna] });
      await refuses(await cast.member(six), 'too-few-approvals', /1 of 2 approvals for a scope of 6/);
      const five = await cast.batch({ batchId: 'five', leaves: [reboot('node-1'), ...others(4)], by: [cast.anna] });
      await accepts(await cast.member(five));
    },
  },
  {
    title: 'DMN-006 never takes fewer than one signature, whatever threshold it was given',
    machine: withTrust(({ anna }) => ({ quorum: quorumOfApprovers({ approvers: [anna], approverThreshold: 0 }) })),
    async play({ cast, accepts, refuses }) {
      await refuses(await cast.member(await cast.batch({ by: [] })), 'too-few-approvals', /0 of 1 approvals/);
      await accepts(await cast.member(await cast.batch({ by: [cast.anna] })));
    },
  },
  {
    title: 'DMN-007 DMN-008 counts people: one key twice, in its other form, or under two ids is one approver',
    machine: withTrust(({ anna, ben, cleo }) => ({
      quorum: quorumOfApprovers({ approvers: [anna, ben, cleo, { kid: 'f'.repeat(64), signer: anna.signer }] }),
    })),
    async play({ cast, refuses, accepts }) {
      const batch = await cast.batch({ by: [cast.anna] });
      const [signature] = batch.approval.signatures;
      if (signature === undefined) throw new Error('anna signed');
      const twists = [
        [signature, signature],
        [signature, malleated(signature)],
        [signature, { ...signature, kid: 'f'.repeat(64) }],
        [{ ...signature, kid: 'f'.repeat(64) }, malleated(signature)],
      ];
      for (const signatures of twists) {
        const command = await cast.member(batch);
        await refuses(
          Object.assign(command, { batchApproval: { ...batch.approval, signatures } }),
          'too-few-approvals',
          /1 of 2 approvals/,
        );
      }
      const { notAfterMs } = batch;
      const bens = (await cast.batch({ by: [cast.ben], notAfterMs })).approval.signatures;
      const both = { ...batch.approval, signatures: [malleated(signature), signature, ...bens] };
      await accepts(await cast.member({ ...batch, approval: both }), 'two people, one of them twice');
    },
  },
  {
    title: 'QUO-071 DMN-032 signatures of strangers beside the approvers’ spoil nothing and count for nothing',
    async play({ cast, accepts, refuses }) {
      const stranger = createApprover();
      await refuses(await cast.member(await cast.batch({ by: [cast.anna, stranger] })), 'too-few-approvals', /1 of 2 approvals/);
      await accepts(await cast.member(await cast.batch({ by: [stranger, cast.anna, cast.cleo] })));
    },
  },
  {
    title: 'DMN-009 DMN-029 an approval ends in server time',
    async play({ cast, machine, accepts, refuses }) {
      const batch = await cast.batch({ notAfterMs: Date.now() + 10 * minute });
      await machine.moveServerTime(2 * hour);
      const late = await cast.member(batch, { expiresAtMs: Date.now() + 5 * hour });
      await refuses(late, 'approval-expired', /the approval ended at/);
      await accepts(
        await cast.member(await cast.batch({ batchId: 'batch-2', notAfterMs: Date.now() + 3 * hour }), {
          expiresAtMs: Date.now() + 5 * hour,
        }),
      );
    },
  },
  {
    title: 'DMN-009 FRM-010 what a destructive command proved about the time outlives a restart, however far back the gateway then goes',
    async play({ cast, machine, accepts, refuses }) {
      const soon = Date.now() + 10_000;
      const ended = await cast.batch({ batchId: 'ended', notAfterMs: soon });
      await accepts(await cast.member(await cast.batch(), { issuedAtMs: soon + 10_000, expiresAtMs: soon + hour }));
      await machine.restart();
      await machine.moveServerTime(-2 * hour);
      await refuses(await cast.member(ended, { expiresAtMs: soon + hour }), 'approval-expired', /the approval ended at/);
    },
  },
  {
    title: 'QUO-005 DMN-010 a proof is of the command’s own leaf, or it proves nothing',
    async play({ cast, accepts, refuses }) {
      const batch = await cast.batch({ leaves: [reboot('node-1'), ...others(2)] });
      const swapped = await cast.member(batch);
      swapped.batchProof = batch.proofOf('node-2');
      await refuses(swapped, 'not-in-scope', /node\.reboot on node-1 is not the operation that the proof proves/);
      const without = await cast.member(batch);
      delete without.batchProof;
      await refuses(without, 'no-proof');
      const foreign = await cast.batch({ batchId: 'foreign', leaves: others(3) });
      const added = Object.assign(await cast.member(batch, { body: { batchId: 'foreign' } }), { batchApproval: foreign.approval });
      await refuses(Object.assign(added, { batchProof: foreign.proofAt(0) }), 'not-in-scope');
      await accepts(await cast.member(batch));
    },
  },
  {
    title: 'QUO-012 QUO-014 a leaf that is bound to a payload admits that payload and no other',
    async play({ cast, accepts, refuses }) {
      const batch = await cast.batch({ leaves: [reboot('node-1', rebootDigest(0)), ...others(1)] });
      await refuses(await cast.member(batch, { payload: { delaySeconds: 7 } }), 'not-in-scope');
      await accepts(await cast.member(batch, { payload: {} }));
    },
  },
  {
    title: 'QUO-013 a leaf without a payload admits any, once',
    async play({ cast, accepts, refuses }) {
      const batch = await cast.batch();
      await accepts(await cast.member(batch, { id: 'c-1', payload: { reason: 'a kernel' } }));
      await refuses(
        await cast.member(batch, { id: 'c-2', payload: { reason: 'another' } }),
        'leaf-used',
        /command c-1 used this operation/,
      );
    },
  },
  {
    title: 'DMN-012 DMN-014 each leaf runs once, also after a restart',
    async play({ cast, machine, accepts, refuses }) {
      const batch = await cast.batch();
      await accepts(await cast.member(batch, { id: 'c-1' }));
      await refuses(await cast.member(batch, { id: 'c-2' }), 'leaf-used', /command c-1 used this operation of batch batch-1/);
      await machine.restart();
      await refuses(await cast.member(batch, { id: 'c-3' }), 'leaf-used', /command c-1/);
    },
  },
  {
    title: 'DMN-013 another tree of the same batch does not free a used leaf by giving it another place',
    async play({ cast, accepts, refuses, equal }) {
      const first = await cast.batch({ batchId: 'b' });
      await accepts(await cast.member(first, { id: 'c-1' }));
      const second = await cast.batch({ batchId: 'b', leaves: [reboot('node-1'), ...others(6)] });
      equal(second.proofOf('node-1').siblings.length > 0, true, 'the leaf stands elsewhere');
      await refuses(await cast.member(second, { id: 'c-2' }), 'leaf-used', /command c-1/);
    },
  },
  {
    title: 'DMN-015 the same command keeps its leaf, however often it is delivered',
    async play({ cast, accepts }) {
      const command = await cast.member(await cast.batch(), { id: 'c-1' });
      for (const why of ['first', 'again', 'and again']) await accepts(command, why);
    },
  },
  {
    title: 'a restored control plane that forgot a used leaf and issues its command anew, under the same id, is refused',
    async play({ cast, machine, accepts, refuses, rejects }) {
      const batch = await cast.batch({ notAfterMs: Date.now() + 5 * hour });
      await accepts(await cast.member(batch, { id: 'c-1' }));
      const anew = await cast.member(batch, { id: 'c-1', issuedAtMs: Date.now() + 1, expiresAtMs: Date.now() + 4 * hour });
      await rejects(anew, 'REPLAY_MISMATCH');
      await refuses(await cast.member(batch, { id: 'c-1-again' }), 'leaf-used');
      await machine.restart();
      await refuses(await cast.member(batch, { id: 'c-1-later' }), 'leaf-used');
    },
  },
  {
    title: 'QUO-031 QUO-034 the batch id is in the signed body: a gateway that sends it under another batch’s approval gets nowhere',
    async play({ cast, accepts, refuses }) {
      const [mine, other] = [await cast.batch({ batchId: 'mine' }), await cast.batch({ batchId: 'other' })];
      const swapped = await cast.member(mine, { id: 'c-1' });
      await refuses(Object.assign(swapped, { batchApproval: other.approval, batchProof: other.proofOf('node-1') }), 'batch-differs');
      const renamed = await cast.member(mine, { id: 'c-2' });
      renamed.batchApproval = { ...other.approval, batchId: 'mine' };
      await refuses(renamed, 'not-in-scope');
      const resized = await cast.member(mine, { id: 'c-3' });
      resized.batchApproval = { ...mine.approval, notAfterMs: mine.approval.notAfterMs + 1n };
      await refuses(resized, 'too-few-approvals', /0 of 2 approvals/);
      await accepts(await cast.member(mine, { id: 'c-4' }));
    },
  },
  {
    title:
      'QUO-002 the batch id is inside of what the worker signed: with another in its place the signature is bad, and nothing is used up',
    async play({ cast, accepts, rejects }) {
      const [mine, other] = [await cast.batch({ batchId: 'mine' }), await cast.batch({ batchId: 'other' })];
      const genuine = await cast.member(mine, { id: 'c-1' });
      for (const batchId of ['other', '']) {
        const body = toBinary(CommandBodySchema, { ...fromBinary(CommandBodySchema, genuine.body), batchId });
        const moved = { ...genuine, body, batchApproval: other.approval, batchProof: other.proofOf('node-1') };
        await rejects(moved, 'BAD_SIGNATURE');
      }
      await accepts(genuine);
      await accepts(await cast.member(other, { id: 'c-2' }));
    },
  },
  {
    title: 'DMN-021 DMN-030 DMN-032 a delivery that is forged, for another node or late uses up no leaf and no slot',
    machine: withTrust(({ anna, ben, cleo }) => ({
      quorum: quorumOfApprovers({ approvers: [anna, ben, cleo], unbatchedDestructivePerHour: 1 }),
    })),
    async play({ cast, accepts, rejects }) {
      const batch = await cast.batch();
      const { foreignWorker } = cast.deployment;
      await rejects(await cast.member(batch, { worker: foreignWorker }), 'UNKNOWN_ROOT');
      await rejects(await cast.member(batch, { generation: 9n }), 'WRONG_GENERATION');
      await rejects(await cast.member(batch, { body: { nodeId: 'node-9' } }), 'WRONG_NODE');
      const late = { issuedAtMs: Date.now() - hour, expiresAtMs: Date.now() - minute };
      await rejects(await cast.member(batch, late), 'EXPIRED');
      const bare = (init: CommandInit) => commandOf(cast.deployment, { kind: 'node.reboot', ...init });
      await rejects(await bare({ worker: foreignWorker }), 'UNKNOWN_ROOT');
      await rejects(await bare({ generation: 9n }), 'WRONG_GENERATION');
      await rejects(await bare(late), 'EXPIRED');
      await accepts(await cast.member(batch, { id: 'genuine' }));
      await accepts(await commandOf(cast.deployment, { id: 'break-glass', kind: 'node.reboot' }));
    },
  },
  {
    title: 'DMN-017 DMN-018 DMN-019 DMN-020 outside of batches: so many an hour, redeliveries not counted, restarts not forgiven',
    machine: withTrust(({ anna, ben, cleo }) => ({
      quorum: quorumOfApprovers({ approvers: [anna, ben, cleo], unbatchedDestructivePerHour: 2 }),
    })),
    async play({ cast, machine, accepts, rejects, equal }) {
      const first = await commandOf(cast.deployment, { id: 'u-1', kind: 'node.reboot' });
      await accepts(first);
      await accepts(first, 'a redelivery');
      await accepts(await commandOf(cast.deployment, { id: 'u-2', kind: 'node.reboot' }));
      const third = await rejects(await commandOf(cast.deployment, { id: 'u-3', kind: 'node.reboot' }), 'UNBATCHED_LIMIT');
      equal(third.detail, 'unbatched-limit: 2 of 2 destructive commands outside of batches ran here in the last hour');
      await machine.restart();
      await rejects(await commandOf(cast.deployment, { id: 'u-4', kind: 'node.reboot' }), 'UNBATCHED_LIMIT');
    },
  },
  {
    title: 'DMN-028 a gateway that moves server time two hours on ages no unbatched command out of the count',
    machine: withTrust(({ anna, ben, cleo }) => ({
      quorum: quorumOfApprovers({ approvers: [anna, ben, cleo], unbatchedDestructivePerHour: 1 }),
    })),
    async play({ cast, machine, accepts, rejects }) {
      const times = { expiresAtMs: Date.now() + 5 * hour };
      await accepts(await commandOf(cast.deployment, { id: 'u-1', kind: 'node.reboot', ...times }));
      await machine.moveServerTime(2 * hour);
      await rejects(await commandOf(cast.deployment, { id: 'u-2', kind: 'node.reboot', ...times }), 'UNBATCHED_LIMIT');
    },
  },
  {
    title: 'QUO-072 QUO-058 with the default allowance a compromised worker reboots nothing',
    async play({ cast, rejects, refuses }) {
      for (const id of ['u-1', 'u-2']) await rejects(await commandOf(cast.deployment, { id, kind: 'node.reboot' }), 'UNBATCHED_LIMIT');
      const own = createApprover();
      await refuses(await cast.member(await cast.batch({ by: [own, createApprover()] })), 'too-few-approvals', /0 of 2/);
    },
  },
  {
    title: 'QUO-045 QUO-046 an approval for staging is none in production',
    async play({ cast, accepts, refuses }) {
      const staging = await cast.batch({ batchId: 'b', trustDomain: 'staging.example' });
      await refuses(await cast.member(staging), 'too-few-approvals', /0 of 2 approvals/);
      await accepts(await cast.member(await cast.batch({ batchId: 'b' })));
    },
  },
  {
    title: 'a removed approver’s signatures stop counting once the set without him is held, those of old batches too',
    async play({ cast, machine, accepts, refuses, equal }) {
      const { anna, ben, cleo, deployment } = cast;
      const old = await cast.batch({ batchId: 'old', by: [anna, cleo] });
      const next = await signedSet(quorumOfApprovers({ approvers: [anna, ben], approverSetEpoch: 2 }), [anna, ben], deployment.trustDomain);
      const reported = await machine.offerTrust({ version: 2, roots: [deployment.rootA], quorum: next });
      equal(reported.epoch, 2n);
      await refuses(await cast.member(old), 'too-few-approvals', /1 of 2 approvals/);
      await accepts(await cast.member(await cast.batch({ batchId: 'new', by: [anna, ben] })));
    },
  },
];
