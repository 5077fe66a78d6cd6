/** What another TPM, repeated answers and other keys get from attestor tpm; both TPMs are swtpm. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { tpmAnswer } from '../../daemon/tpm/attest.ts';
import { withTpm } from '../../daemon/tpm/machine-tpm.ts';
import { minute } from '../../domain/time.ts';
import { attestedDigest } from '../../pki/tpm/index.ts';
import { spkiOf } from '../../pki/x509/index.ts';
import { challengeLivesMs } from '../../services/join/tpm.ts';
import { scratchFolder } from '../harness/scratch.ts';
import { csrOf, newKey, refused } from './support.ts';
import { answerWith, changed, deferredOf, evidenceOf, grantedOf, type TpmMachine, useTpmStage } from './tpm-stage.ts';

describe('joining by a TPM, against an adversary with a TPM of his own', function () {
  this.timeout(180_000);
  const stage = useTpmStage();

  it('JOIN-026 cannot open what was asked of another TPM, whatever of it he shows', async () => {
    stage.list(stage.machine);
    const key = newKey();
    const csr = await csrOf(key);
    const { challenge } = deferredOf(await stage.ask(key, stage.machine.shown, { csr }));
    await assert.rejects(
      tpmAnswer(stage.at(stage.adversary), { challenge, csr }),
      refused('INVALID_STATE', /tpm2_activatecredential failed/, 'tpm'),
    );
    // The victim's endorsement key beside his own attestation key: not even the victim's TPM opens that.
    const mixed = changed(stage.machine.shown, (one) => ({ ...one, akPublic: evidenceOf(stage.adversary.shown).akPublic }));
    const asked = deferredOf(await stage.ask(key, mixed, { csr }));
    for (const one of [stage.machine, stage.adversary])
      await assert.rejects(
        tpmAnswer(stage.at(one), { challenge: asked.challenge, csr }),
        refused('INVALID_STATE', /tpm2_activatecredential failed/, 'tpm'),
      );
  });

  it('JOIN-026 cannot answer without the secret, for another request, or with another key than the one that was challenged', async () => {
    stage.list(stage.machine);
    stage.list(stage.adversary);
    const { key, csr, evidence } = await stage.answered(stage.machine);
    const guess = answerWith(evidence, (answer) => void (answer.secret = new Uint8Array(32)));
    await assert.rejects(stage.ask(key, guess, { csr }), refused('PERMISSION_DENIED', /not what the TPM was asked for/, 'tpm-secret'));
    await assert.rejects(
      stage.ask(newKey(), evidence),
      refused('PERMISSION_DENIED', /the challenge was for another request/, 'tpm-challenge-differs'),
    );
    const { ekPublic, akPublic } = evidenceOf(stage.adversary.shown);
    const otherAk = changed(evidence, (one) => ({ ...one, akPublic }));
    await assert.rejects(
      stage.ask(key, otherAk, { csr }),
      refused('PERMISSION_DENIED', /for another attestation key/, 'tpm-challenge-differs'),
    );
    const otherEk = changed(evidence, (one) => ({ ...one, ekPublic }));
    await assert.rejects(
      stage.ask(key, otherEk, { csr }),
      refused('PERMISSION_DENIED', /for another endorsement key/, 'tpm-challenge-differs'),
    );
    const unasked = answerWith(evidence, (answer) => void (answer.challengeId = 'none'));
    await assert.rejects(stage.ask(key, unasked, { csr }), refused('PERMISSION_DENIED', /not known here/, 'tpm-challenge-unknown'));
    const bare = answerWith(evidence, (answer) => void delete answer.attestation);
    await assert.rejects(stage.ask(key, bare, { csr }), refused('MALFORMED', /no attestation of the key/, 'evidence'));
    assert.equal(grantedOf(await stage.ask(key, evidence, { csr })).generation, 1n, 'nothing of this used the challenge up');
  });

  it('JOIN-026 cannot have another key attested: each quote is for one key and one challenge, by the key that was challenged', async () => {
    stage.list(stage.machine);
    const { key, csr, evidence } = await stage.answered(stage.machine);
    const attestedBy = (one: TpmMachine, spki: Uint8Array, request: Uint8Array) =>
      withTpm({ ...stage.at(one), mayCreate: false }, async (tpm) => ({
        akPublic: tpm.shown.akPublic,
        ...(await tpm.quote(attestedDigest({ spki, request }))),
      }));
    const secret = evidenceOf(evidence).answer?.secret ?? new Uint8Array();
    const spki = spkiOf(key.publicKey);
    const replaced = async (attestation: Awaited<ReturnType<typeof attestedBy>>) =>
      stage.ask(
        key,
        answerWith(evidence, (answer) => void (answer.attestation = { ...answer.attestation!, ...attestation })),
        { csr },
      );
    await assert.rejects(
      replaced(await attestedBy(stage.machine, spkiOf(newKey().publicKey), secret)),
      refused('PERMISSION_DENIED', /about another key or another request/, 'tpm-other-key'),
    );
    await assert.rejects(
      replaced(await attestedBy(stage.machine, spki, new Uint8Array(32))),
      refused('PERMISSION_DENIED', /about another key or another request/, 'tpm-other-key'),
    );
    const byOther = await attestedBy(stage.adversary, spki, secret);
    await assert.rejects(replaced(byOther), refused('PERMISSION_DENIED', /another attestation key speaks/, 'tpm-other-ak'));
    const { akPublic } = evidenceOf(stage.machine.shown);
    await assert.rejects(replaced({ ...byOther, akPublic }), refused('BAD_SIGNATURE', /did not sign this quote/, 'tpm-signature'));
    const own = await attestedBy(stage.machine, spki, secret);
    for (const byte of [0, 5, 50, own.quote.length - 1]) {
      const quote = Uint8Array.from(own.quote, (value, index) => (index === byte ? value ^ 1 : value));
      await assert.rejects(replaced({ ...own, quote }), refused('BAD_SIGNATURE', /did not sign this quote/, 'tpm-signature'));
    }
  });

  it('is too late after two minutes', async () => {
    stage.list(stage.machine);
    const { key, csr, evidence } = await stage.answered(stage.machine);
    stage.now += challengeLivesMs;
    await assert.rejects(stage.ask(key, evidence, { csr }), refused('PERMISSION_DENIED', /more than 2 minutes/, 'tpm-challenge-expired'));
    stage.now += minute;
    await stage.ask(newKey(), stage.machine.shown);
    const left = await stage.used.db.query({ text: 'select 1 from tpm_challenges where expires_at < $1' }, [new Date(stage.now)]);
    assert.equal(left.length, 0, 'what is over leaves with the next challenge');
  });

  it('gets nowhere with keys that could leave their TPM, or that do what the other should', async () => {
    stage.list(stage.machine);
    const { tool } = stage.machine.tpm;
    const folder = scratchFolder();
    const path = (name: string): string => join(folder, name);
    const made = (attributes: string): Uint8Array => {
      tool('tpm2_createprimary', '-C', 'owner', '-G', 'ecc', '-c', path('primary.ctx'));
      tool('tpm2_flushcontext', '--transient-object');
      const kind = ['-G', 'ecc256:ecdsa', '-g', 'sha256', '-a', attributes];
      tool('tpm2_create', '-C', path('primary.ctx'), ...kind, '-u', path('pub'), '-r', path('priv'));
      tool('tpm2_flushcontext', '--transient-object');
      return readFileSync(path('pub'));
    };
    const shownWith = (akPublic: Uint8Array) =>
      stage.ask(
        newKey(),
        changed(stage.machine.shown, (one) => ({ ...one, akPublic })),
      );
    const unrestricted = made('sign|fixedtpm|fixedparent|sensitivedataorigin|userwithauth');
    await assert.rejects(shownWith(unrestricted), refused('PERMISSION_DENIED', /is not restricted/, 'tpm-ak-attributes'));
    const movable = made('sign|sensitivedataorigin|userwithauth');
    await assert.rejects(shownWith(movable), refused('PERMISSION_DENIED', /is not fixedTPM, fixedParent, restricted/, 'tpm-ak-attributes'));
    const { ekPublic, akPublic } = evidenceOf(stage.machine.shown);
    await assert.rejects(shownWith(ekPublic), refused('PERMISSION_DENIED', /is not sign/, 'tpm-ak-attributes'));
    const asEk = changed(stage.machine.shown, (one) => ({ ...one, ekPublic: akPublic }));
    await assert.rejects(stage.ask(newKey(), asEk), refused('PERMISSION_DENIED', /endorsement key is not decrypt/, 'tpm-ek-attributes'));
    await assert.rejects(stage.ask(newKey(), Buffer.from([0xff])), refused('MALFORMED', /not a TpmEvidence/, 'evidence'));
  });
});
