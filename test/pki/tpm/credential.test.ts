/** What we make for a TPM, a TPM opens (swtpm); only that one, and only for the key that was named. */
import assert from 'node:assert/strict';
import { withTpm } from '../../../daemon/tpm/machine-tpm.ts';
import { makeCredential, parseTpmPublic } from '../../../pki/tpm/index.ts';
import { removeScratchFolders, scratchFolder } from '../../harness/scratch.ts';
import { type SoftwareTpm, startSwtpm, swtpmMissing } from '../../harness/swtpm.ts';
import { refusal } from '../support.ts';

describe('a credential for a TPM', function () {
  this.timeout(120_000);
  let tpm: SoftwareTpm;
  before(async function () {
    const missing = swtpmMissing();
    if (missing !== null) return this.skip();
    tpm = await startSwtpm();
  });
  after(async () => {
    await tpm?.stop();
    removeScratchFolders();
  });

  for (const ek of ['ecc', 'rsa'] as const) {
    it(`${ek}: comes back as it was, whatever its length; one changed bit, or another name, and it does not`, async () => {
      await withTpm({ dataDir: scratchFolder(), place: { tcti: tpm.tcti, ek }, mayCreate: true }, async ({ shown, activate }) => {
        const key = parseTpmPublic(shown.ekPublic, 'ek');
        const { name } = parseTpmPublic(shown.akPublic, 'ak');
        for (const size of [1, 20, 32]) {
          const secret = Buffer.alloc(size, size);
          assert.deepEqual(Buffer.from(await activate(makeCredential(key, name, secret))), secret);
        }
        const made = makeCredential(key, name, Buffer.alloc(32, 9));
        const blob = Uint8Array.from(made.blob, (value, at) => (at === made.blob.length - 1 ? value ^ 1 : value));
        const otherName = Uint8Array.from(name, (value, at) => (at === 2 ? value ^ 1 : value));
        for (const bad of [{ ...made, blob }, makeCredential(key, otherName, Buffer.alloc(32, 9))])
          await assert.rejects(activate(bad), refusal('INVALID_STATE', 'tpm', /tpm2_activatecredential failed with the TPM at swtpm:/));
      });
    });
  }
});
