import assert from 'node:assert/strict';
import { examineWorkload } from '../../cli/doctor/examine-workload.ts';
import type { Finding } from '../../cli/doctor/finding.ts';

describe('doctor, the address of the workload issuer', () => {
  const env = { BETTER_COMPUTE_WORKLOAD_ISSUER: 'https://id.example.com/a' };
  const asked: string[] = [];
  const examined = async (answer: () => Promise<Response>): Promise<Finding[]> =>
    examineWorkload(env, async (url) => {
      asked.push(url);
      return answer();
    });
  const json =
    (value: unknown, status = 200) =>
    async () =>
      new Response(JSON.stringify(value), { status });

  it('WID-016 asks the address for the key set, as relying parties do, and says when it does not lead here', async () => {
    const [good] = await examined(json({ keys: [{ kid: 'a' }] }));
    assert.deepEqual(
      [good?.id, good?.severity, good?.message],
      ['workload.issuer', 'ok', 'https://id.example.com/a/.well-known/jwks.json answers 1 key(s)'],
    );
    assert.deepEqual(asked, ['https://id.example.com/a/.well-known/jwks.json']);
    for (const answer of [
      json({ keys: [] }),
      json({ error: 'nothing here' }, 404),
      async () => new Response('<html>', { status: 200 }),
      async () => Promise.reject(new Error('getaddrinfo ENOTFOUND id.example.com')),
    ]) {
      const [bad, ...more] = await examined(answer);
      assert.deepEqual([bad?.id, bad?.severity, more], ['workload.unreachable', 'warning', []]);
      assert.match(bad?.message ?? '', /^https:\/\/id\.example\.com\/a\/\.well-known\/jwks\.json (answers|does not answer)/);
      assert.match(bad?.fix ?? '', /exchange-the-workload-key\.md$/);
    }
  });

  it('WID-016 asks nobody where no issuer is configured', async () => {
    assert.deepEqual(await examineWorkload({}, async () => Promise.reject(new Error('asked'))), []);
  });
});
