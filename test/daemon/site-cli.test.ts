import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { createDeployment, joinedNode } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { startBcd } from './bcd-process.ts';

describe('bcd site', () => {
  after(removeScratchFolders);

  it('is for site agents: it refuses another identity, and serves its machines before a gateway answers', async () => {
    const deployment = await createDeployment();
    const folder = async (role: 'node' | 'site'): Promise<string> => {
      const path = scratchFolder();
      await saveIdentity(path, await joinedNode(deployment, { gatewayUrl: 'https://127.0.0.1:1', nodeId: `${role}-1`, role }));
      const boot = { host: '127.0.0.1', listen: '127.0.0.1', httpPort: 0, tftpPort: 0, folder: path };
      await writeFile(join(path, 'config.json'), JSON.stringify({ site: { boot } }));
      return path;
    };
    const refused = await startBcd(['site', '--data-dir', await folder('node')]).ended;
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /error: node-1 in .* is a node, not a site agent: bcd run runs it;/);
    const bcd = startBcd(['site', '--data-dir', await folder('site')], { env: { BETTER_COMPUTE_READY: 'json' } });
    try {
      await eventually('it listens', async () => bcd.output().includes('bootTftp'));
      const { addresses } = JSON.parse(bcd.output()) as { addresses: Record<string, string> };
      const script = await (await fetch(`http://${addresses['bootHttp']}/ipxe/52:54:00:00:00:01`)).text();
      assert.match(script, /^#!ipxe\necho Better Compute: wait, nothing is known of this machine\n/);
    } finally {
      assert.equal((await bcd.stop()).code, 0);
    }
  });
});
