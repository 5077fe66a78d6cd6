/** Which approver set a machine holds after the bundles it was offered, and what it lets run meanwhile. Played like quorum-scenarios.ts. */
import { approverSetDigest, noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { createApprover, quorumOfApprovers, signedSet } from '../harness/approvers.ts';
import { commandOf, type TrustInit } from '../harness/deployment.ts';
import type { Cast, Scenario } from './quorum-scenarios.ts';

const held = ({ anna, ben, cleo }: Cast): QuorumFields => quorumOfApprovers({ approvers: [anna, ben, cleo] });
const withoutSet = ({ deployment }: Cast): TrustInit => ({ version: 1, roots: [deployment.rootA] });
const offered = ({ deployment }: Cast, version: number, quorum?: QuorumFields): TrustInit => ({
  version,
  roots: [deployment.rootA],
  ...(quorum === undefined ? {} : { quorum }),
});

/** One change of each quorum field, and the removal of all (DMN-022, APPR-001). */
const changes: readonly [what: string, change: (cast: Cast) => QuorumFields][] = [
  ['another key', (cast) => quorumOfApprovers({ approvers: [cast.anna, cast.ben, createApprover()], approverSetEpoch: 2 })],
  ['a key fewer', (cast) => quorumOfApprovers({ approvers: [cast.anna, cast.ben], approverSetEpoch: 2 })],
  ['another threshold', (cast) => ({ ...held(cast), approverThreshold: 1, approverSetEpoch: 2 })],
  ['a tier', (cast) => ({ ...held(cast), tiers: [{ maxScopeSize: 5, threshold: 1 }], approverSetEpoch: 2 })],
  ['another allowance', (cast) => ({ ...held(cast), unbatchedDestructivePerHour: 9, approverSetEpoch: 2 })],
  ['no set at all', () => ({ ...noQuorum, approverSetEpoch: 2 })],
];

export const setScenarios: readonly Scenario[] = [
  ...changes.map(
    ([what, change]): Scenario => ({
      title: `DMN-022 DMN-024 DMN-025 APPR-001 APPR-002 APPR-017 ${what}, unsigned: refused, while roots and version are taken`,
      async play({ cast, machine, equal, accepts, rejects }) {
        const { deployment } = cast;
        const reported = await machine.offerTrust({ version: 2, roots: [deployment.rootA, deployment.rootB], quorum: change(cast) });
        equal(reported, { version: 2n, epoch: 1n, digest: approverSetDigest(held(cast)) });
        const refusals = machine.log.filter(({ message }) => message === 'trust.quorum-refused');
        equal(
          refusals.map(({ facts }) => facts['reason']),
          ['approver-set-unsigned'],
        );
        await accepts(await commandOf(deployment, { worker: deployment.workerB }), 'the new root is held');
        await rejects(await commandOf(deployment, { kind: 'node.reboot' }), 'UNBATCHED_LIMIT');
        await machine.restart();
        equal(machine.hello(), { epoch: 1n, digest: approverSetDigest(held(cast)) }, 'and after a restart');
      },
    }),
  ),
  ...changes.map(
    ([what, change]): Scenario => ({
      title: `APPR-001 DMN-022 ${what}, signed by two of the held three for a higher epoch: taken`,
      async play({ cast, machine, equal }) {
        const next = await signedSet(change(cast), [cast.anna, cast.cleo], cast.deployment.trustDomain);
        const reported = await machine.offerTrust(offered(cast, 2, next));
        const isRemoval = next.approverKeys.length === 0;
        equal(reported, { version: 2n, epoch: isRemoval ? 0n : 2n, digest: isRemoval ? '' : approverSetDigest(next) });
        equal(
          machine.log.some(({ message }) => message === 'trust.quorum-refused'),
          false,
        );
      },
    }),
  ),
  {
    title: 'DMN-023 a held threshold of 0 admits no change, whoever signs it',
    machine: (cast) => ({ trust: { ...cast.trust, quorum: { ...held(cast), approverThreshold: 0 } } }),
    async play({ cast, machine, equal }) {
      const { anna, ben, cleo, deployment } = cast;
      const next = await signedSet({ ...held(cast), approverSetEpoch: 2 }, [anna, ben, cleo], deployment.trustDomain);
      equal((await machine.offerTrust(offered(cast, 2, next))).epoch, 1n);
      const refusal = machine.log.find(({ message }) => message === 'trust.quorum-refused');
      equal(refusal?.facts['reason'], 'approver-set-unsigned');
    },
  },
  {
    title: 'APPR-007 APPR-010 H-10 a machine that was away follows the changes, and no genuine old set moves it back',
    async play({ cast, machine, equal, accepts, refuses }) {
      const { anna, ben, cleo, deployment } = cast;
      const [dora, emil] = [createApprover(), createApprover()];
      const domain = deployment.trustDomain;
      const second = await signedSet(quorumOfApprovers({ approvers: [ben, dora], approverSetEpoch: 2 }), [anna, ben], domain);
      const third = await signedSet(quorumOfApprovers({ approvers: [dora, emil], approverSetEpoch: 3 }), [ben, dora], domain);
      const roots = [deployment.rootA, deployment.rootB];
      // It missed the second set, and none of its approvers are left in the third.
      const reported = await machine.offerTrust({ version: 5, roots, quorum: { ...third, changes: [held(cast), second, third] } });
      equal(reported, { version: 5n, epoch: 3n, digest: approverSetDigest(third) });
      await accepts(await commandOf(deployment, { worker: deployment.workerB }), 'the roots are taken too');
      equal((await machine.offerTrust({ version: 6, roots, quorum: second })).epoch, 3n);
      equal(machine.log.find(({ message }) => message === 'trust.quorum-refused')?.facts['reason'], 'stale-epoch');
      await refuses(await cast.member(await cast.batch({ batchId: 'old', by: [anna, cleo] })), 'too-few-approvals', /0 of 2/);
      await accepts(await cast.member(await cast.batch({ batchId: 'new', by: [dora, emil] })));
    },
  },
  {
    title: 'DMN-027 says in Hello and in every status which set it holds, and nothing where it holds none',
    machine: (cast) => ({ trust: withoutSet(cast) }),
    async play({ cast, machine, equal }) {
      equal(machine.hello(), { epoch: 0n, digest: '' });
      const quorum = { ...held(cast), approverSetEpoch: 4 };
      equal(await machine.offerTrust(offered(cast, 2, quorum)), { version: 2n, epoch: 4n, digest: approverSetDigest(quorum) });
      await machine.restart();
      equal(machine.hello(), { epoch: 4n, digest: approverSetDigest(quorum) });
    },
  },
  {
    title: 'DMN-026 APPR-015 APPR-016 keeps its epoch through a signed removal: the next first set must be above it',
    async play({ cast, machine, equal, accepts, rejects }) {
      const { deployment, anna, ben } = cast;
      const removal = await signedSet({ ...noQuorum, approverSetEpoch: 3 }, [anna, ben], deployment.trustDomain);
      await machine.offerTrust(offered(cast, 2, removal));
      await accepts(await commandOf(deployment, { kind: 'node.reboot' }), 'there is no quorum any more');
      await machine.restart();
      const again = { ...held(cast), approverSetEpoch: 3 };
      equal((await machine.offerTrust(offered(cast, 3, again))).digest, '');
      equal(machine.log.find(({ message }) => message === 'trust.quorum-refused')?.facts['reason'], 'stale-epoch');
      const above = { ...held(cast), approverSetEpoch: 4 };
      equal((await machine.offerTrust(offered(cast, 4, above))).epoch, 4n);
      await rejects(await commandOf(deployment, { kind: 'node.reboot' }), 'UNBATCHED_LIMIT');
    },
  },
  {
    title: 'PIN-001 QUO-052 APPR-019 without a pin the first set is taken as it comes, from whomever holds the JoinService key',
    machine: (cast) => ({ trust: withoutSet(cast) }),
    async play({ cast, machine, equal, accepts }) {
      await accepts(await commandOf(cast.deployment, { kind: 'node.reboot' }), 'no quorum yet');
      const hostile = quorumOfApprovers({ approvers: [createApprover()], approverThreshold: 1 });
      equal((await machine.offerTrust(offered(cast, 2, hostile))).digest, approverSetDigest(hostile));
    },
  },
  {
    title:
      'PIN-007 PIN-008 PIN-015 pinned: an empty set and another set are passed over, roots and version taken, and nothing destructive runs',
    machine: (cast) => ({ trust: withoutSet(cast), approverSetPin: approverSetDigest(held(cast)) }),
    async play({ cast, machine, equal, accepts, refuses, rejects }) {
      const { deployment } = cast;
      const destructive = () => commandOf(deployment, { kind: 'node.reboot' });
      await refuses(await destructive(), 'awaiting-pinned-set', /has not been given it/);
      const hostile = quorumOfApprovers({ approvers: [createApprover()], approverThreshold: 1, approverSetEpoch: 9 });
      const sets: readonly [number, QuorumFields][] = [
        [2, { ...noQuorum, approverSetEpoch: 8 }],
        [3, hostile],
      ];
      for (const [version, quorum] of sets) {
        const reported = await machine.offerTrust({ version, roots: [deployment.rootA, deployment.rootB], quorum });
        equal(reported, { version: BigInt(version), epoch: 0n, digest: '' });
        await refuses(await destructive(), 'awaiting-pinned-set');
      }
      equal(
        machine.log.filter(({ message }) => message === 'trust.quorum-refused').map(({ facts }) => facts['reason']),
        ['pin-mismatch', 'pin-mismatch'],
      );
      await accepts(await commandOf(deployment, { worker: deployment.workerB }), 'the rest of the bundle applies');
      equal((await machine.offerTrust({ ...offered(cast, 4, held(cast)), roots: [deployment.rootA, deployment.rootB] })).epoch, 1n);
      await rejects(await destructive(), 'UNBATCHED_LIMIT');
      await accepts(await cast.member(await cast.batch()));
    },
  },
];
