/** Answers made to be copied into a shell, to move a cursor, or to fill a memory: what the commands around an approval do with them. */
import assert from 'node:assert/strict';
import { collectScope } from '../../../cli/batch/collect.ts';
import { readDocument } from '../../../cli/batch/document.ts';
import { table } from '../../../cli/format.ts';
import { createDesk, createHostileApi, type Desk, type HostileApi, reboot } from './hostile-api.ts';

describe('batch commands: answers of a hostile api', function () {
  this.timeout(20_000);
  let api: HostileApi;
  let desk: Desk;
  beforeEach(async () => {
    api = await createHostileApi();
    desk = createDesk(api);
  });
  afterEach(async () => {
    desk.close();
    await api.close();
  });

  const shellWords = ['$(reboot)', 'x;reboot', '`reboot`', 'x|reboot', '--key=/etc/passwd', "x'y", 'x&reboot'];

  it('BATCLI-001 no line to copy holds an id that a shell would read', async () => {
    for (const id of shellWords) {
      api.batch = { ...api.batch, id };
      const listed = await desk.run('list');
      assert.equal(listed.exitCode, 9, id);
      assert.match(listed.err, /id is not/);
      assert.doesNotMatch(listed.out + listed.err, /batch show/);
      const document = desk.write(
        'bent.json',
        JSON.stringify({ format: 'better-compute-batch', version: 1, batch: api.batch, leaves: [] }),
      );
      assert.throws(() => readDocument(document), /id is not/, id);
    }
  });

  it('BATCLI-001 BAT-056 what create is answered is judged before it is printed', async () => {
    const scope = desk.write('scope.json', '[{"subject":"node_1","kind":"node.reboot"}]');
    const create = () => desk.run('create', '--scope', scope, '--reason', 'x');
    const answer = { batchId: 'bat_new', held: true, required: 2, size: 1, root: 'a'.repeat(64), created: true };
    for (const bent of [
      ...[...shellWords, 'x\u001b[2J', 7, undefined].map((batchId) => ({ batchId })),
      { required: '2\u001b[2J' },
      { root: '$(reboot)' },
    ]) {
      api.override = () => ({ ...answer, ...bent });
      const { exitCode, out, err } = await create();
      assert.deepEqual([exitCode, out], [9, ''], JSON.stringify(bent));
      assert.doesNotMatch(err, /batch approve|\u001b/);
    }
    api.override = () => answer;
    assert.match((await create()).err, /batch approve bat_new --key KEY/);
  });

  it('BATCLI-008 a scope that is larger than any batch is not kept', async () => {
    const long = { ...reboot('x'.repeat(1_025)), index: 0 };
    api.override = (path) => (path.endsWith('/scope') ? { leaves: [long], next: null } : undefined);
    assert.match((await desk.run('show', 'bat_1', '--tree')).err, /subject/);
    const payload = { typeUrl: 't', value: Buffer.alloc(65_536).toString('base64') };
    let asked = 0;
    const read = async ({ after }: { after: number | null }) => {
      asked += 1;
      const index = (after ?? -1) + 1;
      return { leaves: [{ index, subject: 'n', kind: 'k', payloadSha256: '', payload }], next: index };
    };
    await assert.rejects(collectScope({ size: 50_000 }, read), /payloads/);
    assert.equal(asked, 129);
  });

  it('BAT-056 no cell of a table moves a cursor, hides or turns around', () => {
    const text = table(['A', 'B'], [['x\u001b[2J\ny', '\u202ebatch cancelled by \u009b31m']]);
    assert.doesNotMatch(text, /(?!\n)\p{Cc}|\p{Cf}/u);
    assert.equal(text.split('\n').length, 2);
    assert.match(text, /x\\u\{1b\}\[2J\\u\{a\}y {2}\\u\{202e\}batch/);
  });
});
