import assert from 'node:assert/strict';
import { createTestAuthorities, minute, now, user } from './support.ts';

describe('pki/ssh authorities and a clock that goes on', () => {
  it('SBX-002 the shortest life is issued, although time passes while it is judged', async () => {
    let at = now;
    const { sandbox } = createTestAuthorities('ed25519', () => (at += 1));
    const { validBefore } = await sandbox.issueUserCertificate({
      publicKey: user.line,
      account: 'agent',
      instanceId: 'i-1',
      keyId: 'ada',
      ttlSeconds: 60,
      sessionEndsAt: now + 60 * minute,
      sandboxExpiresAt: now + 60 * minute,
    });
    assert.equal(validBefore, now + 60_000);
  });
});
