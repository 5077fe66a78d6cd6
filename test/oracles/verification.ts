/** The tests that every judge of certificates gets: ours read by it, its read by us, what is changed or foreign refused by both. */
import assert from 'node:assert/strict';
import { isControlError } from '../../domain/errors.ts';
import { day } from '../../domain/time.ts';
import { type ChainPurpose, createCsr, parseCertificate, parseCsr, verifyChain } from '../../pki/x509/index.ts';
import { createKey } from '../pki/x509/authorities.ts';
import { createDeployment, type Deployment, type Issued, isOfOwnKind, serverName, tamperings, type Use } from './issued.ts';
import type { Judge, JudgedChain, MadeChain } from './judges.ts';
import { type GoodShape, goodShapes, refusedShapes } from './shapes.ts';

const now = Date.now();

const others: Readonly<Record<Use, Use>> = Object.freeze({ client: 'server', server: 'client' });

const chainOf = ({ certificate, intermediates, anchor, uses }: Issued, change: Partial<JudgedChain> = {}): JudgedChain => ({
  leaf: certificate.der,
  intermediates: intermediates.map(({ der }) => der),
  anchors: [anchor.der],
  uses,
  ...(uses.includes('server') ? { serverName } : {}),
  ...change,
});

const refusalOf = (action: () => unknown): string => {
  try {
    action();
  } catch (error) {
    assert.ok(isControlError(error), `not a ControlError: ${String(error)}`);
    return `${error.code} ${String(error.details['reason'])}`;
  }
  return 'accepted';
};

/** What our verifier says of a chain that a judge was asked about. */
const oursOf = ({ leaf, intermediates, anchors, uses, serverName: name }: JudgedChain): string =>
  refusalOf(() => {
    for (const purpose of uses.length === 0 ? (['command-signer'] as const) : uses)
      verifyChain([leaf, ...intermediates], {
        anchors,
        now: Date.now(),
        purpose,
        ...(purpose === 'server' && name ? { serverName: name } : {}),
      });
  });

const usesOf: Readonly<Record<ChainPurpose, readonly Use[]>> = Object.freeze({
  client: ['client'],
  server: ['server'],
  internal: ['client', 'server'],
  'command-signer': [],
});

const verifyTheirs = ({ chain: [root, ...rest] }: MadeChain, purpose: ChainPurpose): ReturnType<typeof verifyChain> =>
  verifyChain(rest.toReversed(), { anchors: [root as Uint8Array], now: Date.now(), purpose });

const isLeaf = ({ certificate, uses }: Issued): boolean => !certificate.isCa && uses.length > 0;

/** From a before hook: skips its tests, and writes into their titles why. */
export function nameTheSkip(context: Mocha.Context, why: string): never {
  context.test?.parent?.eachTest((test) => (test.title += ` (skipped: ${why})`));
  return context.skip();
}

/** Describes the tests of one judge. `find` answers it, or why it is not to be had: then they are skipped by that name. */
export function describeJudge(name: string, find: () => Promise<{ readonly judge: Judge | null; readonly why: string }>): void {
  describe(`oracle: ${name}`, function () {
    this.timeout(60_000);
    let judge: Judge;
    let deployment: Deployment;
    before(async function () {
      // A judge may have to be built first.
      this.timeout(6 * 60_000);
      const found = await find();
      if (found.judge === null) return nameTheSkip(this, found.why);
      judge = found.judge;
      deployment = await createDeployment(now);
    });

    const verdicts = async (cases: readonly (readonly [string, JudgedChain])[]): Promise<Map<string, string | null>> => {
      const answers = await judge.verify(cases.map(([, chain]) => chain));
      return new Map(cases.map(([title], i) => [title, answers[i] as string | null]));
    };
    const assertRefused = async (cases: readonly (readonly [string, JudgedChain])[]): Promise<void> => {
      assert.ok(cases.length > 0);
      const accepted = [...(await verdicts(cases))].filter(([, verdict]) => verdict === null).map(([title]) => title);
      assert.deepEqual(accepted, [], `${name} accepted them`);
    };

    it('reads and verifies every kind of certificate we issue, for its use', async () => {
      const cases = deployment.all.map((issued) => [issued.kind, chainOf(issued)] as const);
      assert.deepEqual(await verdicts(cases), new Map(deployment.all.map(({ kind }) => [kind, null])));
      const ours = deployment.all.filter(({ certificate }) => !certificate.isCa).map((issued) => [issued.kind, oursOf(chainOf(issued))]);
      assert.deepEqual(
        ours.filter(([, said]) => said !== 'accepted'),
        [],
      );
    });

    it('refuses each of them for the other use, and so do we', async () => {
      const single = deployment.all.filter(({ uses }) => uses.length === 1);
      const cases = single.map((issued) => {
        const use = others[issued.uses[0] as Use];
        const { serverName: _, ...chain } = chainOf(issued, { uses: [use] });
        return [`${issued.kind} as ${use}`, chain] as const;
      });
      await assertRefused(cases);
      for (const [title, chain] of cases) assert.equal(oursOf(chain), 'PERMISSION_DENIED extended-key-usage', title);
    });

    it('refuses a gateway under a name that is not its own, and so do we', async () => {
      const chain = chainOf(deployment.get('gateway'), { serverName: 'other.fleet.example' });
      await assertRefused([['gateway', chain]]);
      assert.equal(oursOf(chain), 'PERMISSION_DENIED server-name');
    });

    it('refuses what was changed after it was signed, and so do we', async () => {
      const own = deployment.all.filter(isOfOwnKind);
      const cases = own.flatMap((issued) =>
        Object.entries(tamperings).map(([what, change]) => {
          const leaf = change(issued.certificate.der, issued.certificate);
          return [`${issued.kind} with ${what}`, chainOf(issued, { leaf })] as const;
        }),
      );
      await assertRefused(cases);
      for (const [title, chain] of cases.filter(([title]) => isLeaf(deployment.get(title.split(/ with (?:another)/)[0] as string)))) {
        const said = oursOf(chain);
        assert.equal(said, 'BAD_SIGNATURE bad-signature', title);
      }
      const intermediates = own.filter(isLeaf).flatMap((issued) =>
        Object.entries(tamperings).map(([what, change]) => {
          const [ca] = issued.intermediates as [Issued['certificate']];
          return [`${issued.kind} below an authority with ${what}`, chainOf(issued, { intermediates: [change(ca.der, ca)] })] as const;
        }),
      );
      await assertRefused(intermediates);
      for (const [title, chain] of intermediates) assert.match(oursOf(chain), /^BAD_SIGNATURE /, title);
    });

    it('refuses what another deployment of the same name issued, and so do we', async () => {
      const foreign = await createDeployment(now);
      const cases = deployment.all.map(
        (issued) => [issued.kind, chainOf(issued, { anchors: [foreign.get(issued.kind).anchor.der] })] as const,
      );
      await assertRefused(cases);
      for (const [title, chain] of cases.filter(([kind]) => !deployment.get(kind).certificate.isCa))
        assert.equal(oursOf(chain), 'BAD_SIGNATURE unknown-issuer', title);
    });

    it('refuses what has ended, and so do we', async () => {
      const ended = await createDeployment(now - 20 * 365 * day);
      const cases = ended.all
        .filter(({ certificate, anchor }) => certificate !== anchor)
        .map((issued) => [issued.kind, chainOf(issued)] as const);
      await assertRefused(cases);
      for (const [title, chain] of cases.filter(([kind]) => !ended.get(kind).certificate.isCa))
        assert.equal(oursOf(chain), 'CERTIFICATE_EXPIRED expired', title);
    });

    it('takes our requests and refuses changed ones; we do the same with its', async () => {
      const ours = await createCsr({ key: createKey().signer });
      const theirs = (await judge.make([goodShapes['node']?.chain ?? []]))[0]?.request as Uint8Array;
      const changed = (der: Uint8Array): Uint8Array => Buffer.from(der).map((byte, i) => (i === der.length - 1 ? byte ^ 1 : byte));
      const [first, second, ...refused] = await judge.verifyRequests([ours, theirs, changed(ours), changed(theirs)]);
      assert.deepEqual([first, second], [null, null]);
      assert.ok(refused.every((verdict) => verdict !== null));
      assert.equal(parseCsr(theirs).spki.length, 91);
      for (const der of [ours, theirs])
        assert.equal(
          refusalOf(() => parseCsr(changed(der))),
          'BAD_SIGNATURE request-signature',
        );
    });

    describe('what it makes in our shape', () => {
      let made: readonly (readonly [string, GoodShape, MadeChain])[];
      before(async () => {
        const shapes = Object.entries(goodShapes).filter(([, { chain }]) => judge.makes(chain));
        const chains = await judge.make(shapes.map(([, { chain }]) => chain));
        made = shapes.map(([title, shape], i) => [title, shape, chains[i] as MadeChain]);
      });

      const judged = ({ purpose, chain }: GoodShape, [root, ...rest]: readonly Uint8Array[]): JudgedChain => {
        const [name] = chain.at(-1)?.dns ?? [];
        return {
          leaf: rest.at(-1) as Uint8Array,
          intermediates: rest.slice(0, -1),
          anchors: [root as Uint8Array],
          uses: usesOf[purpose],
          ...(name === undefined ? {} : { serverName: name }),
        };
      };

      it('is accepted by both', async () => {
        assert.deepEqual(
          await verdicts(made.map(([title, shape, { chain }]) => [title, judged(shape, chain)])),
          new Map(made.map(([title]) => [title, null])),
        );
        for (const [title, { purpose, role, chain: shapes }, theirs] of made) {
          const { leaf } = verifyTheirs(theirs, purpose);
          const { uris, dns } = shapes.at(-1) as GoodShape['chain'][number];
          assert.deepEqual({ role: leaf.role, uris: leaf.uriSans, dns: leaf.dnsSans }, { role, uris: [...uris], dns: [...dns] }, title);
        }
      });

      it('is refused by both once it is changed', async () => {
        const changed = made.flatMap(([title, shape, { chain }]) =>
          Object.entries(tamperings).map(([what, change]) => {
            const leaf = chain.at(-1) as Uint8Array;
            const all = [...chain.slice(0, -1), change(leaf, parseCertificate(leaf))];
            return [`${title} with ${what}`, shape, all] as const;
          }),
        );
        await assertRefused(changed.map(([title, shape, chain]) => [title, judged(shape, chain)]));
        for (const [title, { purpose }, chain] of changed)
          assert.equal(
            refusalOf(() => verifyTheirs({ chain, request: new Uint8Array() }, purpose)),
            'BAD_SIGNATURE bad-signature',
            title,
          );
      });
    });

    it('makes what we refuse, each with its code', async () => {
      const shapes = Object.entries(refusedShapes).filter(([, { chain }]) => judge.makes(chain));
      const made = await judge.make(shapes.map(([, { chain }]) => chain));
      const said = shapes.map(([title, { purpose }], i) => [title, refusalOf(() => verifyTheirs(made[i] as MadeChain, purpose))]);
      assert.deepEqual(
        said,
        shapes.map(([title, { refusal }]) => [title, refusal]),
      );
    });
  });
}
