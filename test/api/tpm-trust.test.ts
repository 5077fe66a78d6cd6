/** The inventory of TPMs and the roots of their makers, as files that the environment names. */
import assert from 'node:assert/strict';
import { renameSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openTpmTrust, tpmSettingsOf } from '../../api/tpm-trust.ts';
import { readTpmInventory } from '../../services/join/tpm-inventory.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { endorse, makerOf } from '../harness/tpm-makers.ts';
import { recordingLog, refused } from '../services/support.ts';

const [a, b] = ['ab'.repeat(32), 'cd'.repeat(32)];

describe('the inventory of TPMs', () => {
  after(removeScratchFolders);

  it('says of each endorsement key what the machine with it is; what is left out has its usual value', () => {
    const { enrolments, problems } = readTpmInventory(
      `ek_sha256,site,node,role,tenant\n${a.toUpperCase()},eu-1,metal-7,site,acme\n${b},eu-1,,,\n`,
    );
    assert.deepEqual(problems, []);
    assert.deepEqual(enrolments, [
      { ekSha256: a, siteId: 'eu-1', nodeId: 'metal-7', role: 'site', tenantId: 'acme' },
      { ekSha256: b, siteId: 'eu-1', nodeId: null, role: 'node', tenantId: 'default' },
    ]);
    assert.equal(readTpmInventory(`site,ek_sha256\neu-1,${a}`).enrolments[0]?.siteId, 'eu-1');
  });

  it('names every problem with its line: what is not understood is never skipped', () => {
    const told = (text: string): string[] =>
      readTpmInventory(text).problems.map(({ line, field, message }) => `${line} ${field} ${message}`);
    assert.deepEqual(told(''), ['1  the file is empty']);
    assert.deepEqual(told('ek,site\n'), [
      '1 ek is no column: there are ek_sha256, site, node, role, tenant',
      '1 ek_sha256 the column is missing',
    ]);
    assert.deepEqual(told(`ek_sha256,site,site\n${a},eu-1,eu-1`), ['1 site the column stands twice']);
    const rows = [`${a},eu-1,n1,node,x`, `${a},eu 1,n1,gpu,`, `zz,eu-1,,node,all`, `${b},eu-1,a/b`];
    assert.deepEqual(told(`ek_sha256,site,node,role,tenant\n${rows.join('\n')}\n`), [
      '3 site cannot be the name of a site',
      '3 role must be node or site',
      `3 ek_sha256 ${a} stands in line 2 already`,
      '3 node n1 stands in line 2 already',
      '4 ek_sha256 must be 64 hex digits: the SHA-256 of the DER public key',
      '4 tenant cannot be the name of a tenant',
      '5  has 3 fields, the first line has 5',
      '5 node cannot be the name of a node',
    ]);
  });

  describe('as a file', () => {
    const files = (): { inventoryPath: string; rootsPath: string } => {
      const folder = scratchFolder();
      return { inventoryPath: join(folder, 'tpms.csv'), rootsPath: join(folder, 'makers.pem') };
    };
    const head = 'ek_sha256,site\n';

    it('is read again when it changed, whatever its time stamp says; one that does not read back changes nothing', async () => {
      const { inventoryPath } = files();
      const stamp = new Date(0);
      const write = (text: string): void => {
        writeFileSync(`${inventoryPath}.new`, text);
        utimesSync(`${inventoryPath}.new`, stamp, stamp);
        renameSync(`${inventoryPath}.new`, inventoryPath);
      };
      write(`${head}${a},eu-1\n`);
      const log = recordingLog();
      const trust = await openTpmTrust({ inventoryPath, rootsPath: null }, log);
      assert.deepEqual([(await trust.find(a))?.siteId, await trust.find(b), trust.roots], ['eu-1', undefined, null]);
      write(`${head}${b},eu-1\n`);
      assert.deepEqual([await trust.find(a), (await trust.find(b))?.siteId], [undefined, 'eu-1']);
      write(`${head}broken,eu-1\n`);
      for (const _ of [1, 2]) assert.equal((await trust.find(b))?.siteId, 'eu-1');
      renameSync(inventoryPath, `${inventoryPath}.away`);
      for (const _ of [1, 2]) assert.equal((await trust.find(b))?.siteId, 'eu-1');
      write(`${head}${a},fra1\n`);
      assert.deepEqual([(await trust.find(a))?.siteId, await trust.find(b)], ['fra1', undefined]);
      assert.deepEqual(
        log.lines.map(({ level }) => level),
        ['info', 'error', 'error', 'info'],
        'each change is told once',
      );
    });

    it('a start without files that hold is a failed start, and says which', async () => {
      const { inventoryPath, rootsPath } = files();
      const open = (roots: string | null) => openTpmTrust({ inventoryPath, rootsPath: roots }, recordingLog());
      await assert.rejects(open(null), refused('INVALID_CONFIG', /BETTER_COMPUTE_TPM_INVENTORY: .*tpms.csv cannot be read/, 'environment'));
      writeFileSync(inventoryPath, `${head}x,eu-1\n`);
      await assert.rejects(open(null), refused('INVALID_CONFIG', /tpms.csv: line 2: ek_sha256 must be 64 hex digits/, 'environment'));
      writeFileSync(inventoryPath, `${head}${a},eu-1\n`);
      writeFileSync(rootsPath, 'no certificate');
      await assert.rejects(
        open(rootsPath),
        refused('INVALID_CONFIG', /BETTER_COMPUTE_TPM_ROOTS: .*holds no PEM certificate/, 'environment'),
      );
      const maker = await makerOf('CN=Maker of TPMs');
      writeFileSync(rootsPath, (await endorse(new Uint8Array(maker.certificate.publicKey.rawData), maker)).toString('pem'));
      await assert.rejects(
        open(rootsPath),
        refused('INVALID_CONFIG', /certificate 1 of "CN=TPM" is not that of an authority/, 'environment'),
      );
      writeFileSync(rootsPath, maker.certificate.toString('pem'));
      assert.equal((await open(rootsPath)).roots?.certificates.length, 1);
    });

    it('nothing is trusted by default, and roots alone name nobody', () => {
      assert.equal(tpmSettingsOf({}), null);
      assert.deepEqual(tpmSettingsOf({ BETTER_COMPUTE_TPM_INVENTORY: '/x' }), { inventoryPath: '/x', rootsPath: null });
      assert.throws(
        () => tpmSettingsOf({ BETTER_COMPUTE_TPM_ROOTS: '/y' }),
        refused('MISSING_ENV', /BETTER_COMPUTE_TPM_INVENTORY must be set beside BETTER_COMPUTE_TPM_ROOTS/, 'environment'),
      );
    });
  });
});
