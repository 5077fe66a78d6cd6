/** An api that lies to approvers: their program refuses and says why, and what is signed all the same is for what was shown. */
import assert from 'node:assert/strict';
import { rootOfScope } from '../../../pki/quorum/index.ts';
import { encodeApproval } from '../../../services/batches/approval-bytes.ts';
import { createDesk, type Desk, type Run } from '../../cli/batch/hostile-api.ts';
import { sha256 } from '../../harness/deployment.ts';
import { type Bend, type LyingApi, startLyingApi } from '../../harness/lying-api.ts';
import { type Held, leafOf } from './leaves.ts';
import { apiUrlOf, type Scene } from './scene.ts';

interface Page {
  leaves: { index: number; subject: string; kind: string; payloadSha256: string; payload: unknown }[];
  next: number | null;
}
type Batch = Record<string, unknown>;

export function lyingApi(the: () => Scene): void {
  describe('an api that lies to approvers', () => {
    let api: LyingApi;
    let desk: Desk;
    before(async () => {
      const scene = the();
      const { stack } = scene;
      api = await startLyingApi(apiUrlOf(stack));
      desk = createDesk(null, Date.now);
      Object.assign(desk.env, { BETTER_COMPUTE_HOME: stack.home, BETTER_COMPUTE_API_URL: api.url });
      delete desk.env['BETTER_COMPUTE_OPERATOR_TOKEN'];
    });
    after(async () => {
      desk?.close();
      await api?.close();
    });

    const leaves = [
      { node: 'node-1', reason: 'asked for' },
      { node: 'node-2', reason: 'asked for' },
    ];
    const isScope = (path: string): boolean => path.includes('/scope');
    const onPage =
      (change: (page: Page, path: string) => Page): Bend =>
      (path, answer) =>
        isScope(path) ? change(answer as Page, path) : undefined;
    const onBatch =
      (change: Batch): Bend =>
      (path, answer) =>
        isScope(path) || path.endsWith('/approve') ? undefined : { ...(answer as Batch), ...change };
    const other = { ...leafOf({ node: 'node-3', reason: 'not asked for' }) };
    const otherLeaf = (index: number, like: Page['leaves'][number]) => ({
      ...like,
      index,
      subject: other.subject,
    });
    const approve = (batch: Held, ...flags: string[]): Promise<Run> =>
      desk.run('approve', batch.batchId, '--key', the().anna.keyFile, '--yes', ...flags);

    it('BATCLI-001 BATCLI-004 BATCLI-007 BATCLI-015 BATCLI-016 each lie is refused before the key is used, and no machine boots', async () => {
      const scene = the();
      const batch = await scene.hold(leaves);
      for (const leaf of leaves) await scene.put(batch, leaf);
      const root = Buffer.from(batch.root).toString('hex');
      const expected = desk.write('expected.json', JSON.stringify(leaves.map(leafOf)));
      const lies: [what: string, bend: Bend | null, flags: string[], error: RegExp][] = [
        [
          'other leaves than are stored',
          onPage((page) => ({ ...page, leaves: page.leaves.map((leaf) => otherLeaf(leaf.index, leaf)) })),
          [],
          /two different batches/,
        ],
        ['a root that is not the leaves’', onBatch({ root: 'a1'.repeat(32) }), [], /two different batches/],
        ['a leaf hidden behind the size', onBatch({ size: 1 }), [], /two different batches/],
        [
          'a leaf hidden behind the last page',
          onPage((page) => ({ leaves: page.leaves.slice(0, 1), next: null })),
          [],
          /two different batches/,
        ],
        ['pages that shift', onPage((page) => ({ leaves: page.leaves.slice(0, 1), next: 0 })), [], /page/],
        ['another scope, whole', wholeOther(batch), ['--root', root], /has the root .*, not .* that was reviewed/],
        ['another scope, whole, to who knows what he asked for', wholeOther(batch), ['--expect', expected], /node-3/],
        [
          'the deployment of somebody else',
          onBatch({ trustDomain: 'staging.example' }),
          ['--trust-domain', batch.trustDomain],
          /staging\.example/,
        ],
        ['a window of a year', onBatch({ notAfterMs: batch.notAfterMs + 365 * 86_400_000 }), [], /stays open for/],
      ];
      await scene.nothingHappens(async () => {
        for (const [what, bend, flags, error] of lies) {
          api.bend(bend);
          const { exitCode, err } = await approve(batch, ...flags);
          assert.notEqual(exitCode, 0, what);
          assert.match(err, error, what);
        }
        assert.deepEqual(api.sent, [], 'nothing was signed and sent');
      });
    });

    it('BATCLI-012 DMN-004 two approvers who ask for no root sign what they were shown: for the batch that is stored, the machine counts none', async () => {
      const scene = the();
      const { stack, insider, anna, ben } = scene;
      const stored = { node: 'node-1', reason: 'what he wants' };
      const batch = await scene.hold([stored]);
      await scene.nothingHappens(async () => {
        api.bend(wholeOther(batch));
        const before = api.sent.length;
        for (const { keyFile } of [anna, ben]) {
          const { exitCode, err } = await desk.run('approve', batch.batchId, '--key', keyFile, '--yes');
          assert.notEqual(exitCode, 0);
          assert.match(err, /is not over batch \S+ as it is stored/, 'the true api refuses it');
        }
        const signatures = api.sent.slice(before).map(({ body }) => {
          const { kid, sig } = body as { kid: string; sig: string };
          return { kid, sig: new Uint8Array(Buffer.from(sig, 'base64url')) };
        });
        assert.equal(signatures.length, 2);
        const [state] = await the().query('select state from command_batches where id = $1', batch.batchId);
        assert.equal(state?.['state'], 'pending');
        const id = await insider.slip(batch, { ...stored, approval: encodeApproval(batch, signatures) });
        await scene.refusedByMachine(id, /^batch-unapproved: too-few-approvals: 0 of 2 approvals/);
        assert.equal((await stack.api.getCommands(id)).length, 1);
      });
    });

    it('BAT-056 a reason that would move the cursor is shown by its code points, and the program as people run it signs the true scope', async () => {
      const scene = the();
      const { stack, anna, ben } = scene;
      const leaf = { node: 'node-2', reason: 'true' };
      const batch = await scene.hold([leaf]);
      api.bend(onBatch({ reason: 'kernel\u001b[2K\u001b[1Aapproved by \u202eben' }));
      const sent = api.sent.length;
      const { exitCode, out, err } = await desk.run('approve', batch.batchId, '--key', anna.keyFile);
      assert.deepEqual([exitCode, api.sent.length], [0, sent], 'without --yes it only shows');
      assert.doesNotMatch(out + err, /(?!\n)\p{Cc}|\p{Cf}/u);
      assert.match(out + err, /kernel\\u\{1b\}\[2K\\u\{1b\}\[1Aapproved by \\u\{202e\}ben/);
      api.bend(null);
      const id = await scene.put(batch, leaf);
      const before = scene.boots('node-2');
      const flags = ['--root', Buffer.from(batch.root).toString('hex'), '--yes'];
      for (const { keyFile } of [anna, ben]) {
        const env = { BETTER_COMPUTE_API_URL: api.url };
        const done = await stack.betterComputeWith(env, 'batch', 'approve', batch.batchId, '--key', keyFile, ...flags);
        assert.equal(done.code, 0, done.err);
      }
      assert.equal((await scene.end(id)).state, 'done');
      assert.equal(scene.boots('node-2'), before + 1);
    });

    /** Consistent in itself: batch, root, size and leaves of something else under the same id. */
    const wholeOther =
      ({ batchId }: Held): Bend =>
      (path, answer) => {
        const scope = [{ index: 0, ...other, payloadSha256: sha256(Buffer.from(other.payload.value, 'base64')).toString('hex') }];
        if (isScope(path)) return { leaves: scope, next: null };
        const hashed = scope.map(({ subject, kind, payloadSha256 }) => ({
          subject,
          kind,
          payloadSha256: Buffer.from(payloadSha256, 'hex'),
        }));
        return path.endsWith('/approve')
          ? undefined
          : { ...(answer as Batch), size: 1, root: rootOfScope(batchId, hashed).root.toString('hex') };
      };
  });
}
