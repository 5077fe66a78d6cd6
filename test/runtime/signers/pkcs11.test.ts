/** Keys in a real token: SoftHSM 2, driven by our process, and looked at by OpenSC's pkcs11-tool. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createBundle, encodeBundle, openBundle, withExternalSigners } from '../../../pki/bundle/index.ts';
import { createWorkerKey, signCommand, verifyIntent } from '../../../pki/envelope/index.ts';
import { createSerial, verifyRawSignature } from '../../../pki/x509/index.ts';
import { createBundleFileStore } from '../../../runtime/bundle-file-store.ts';
import { openExternalSigners, type RunningSigners, readSignerEnvironment } from '../../../runtime/signers/external-signers.ts';
import { holdBundle } from '../../../workers/bundle-holder.ts';
import { removeScratchFolders, scratchFolder } from '../../harness/scratch.ts';
import { createSoftHsm, type SoftHsm, softHsmMissing } from '../../harness/softhsm.ts';
import { now, refusal, secret, trustDomain } from '../../pki/support.ts';

const input = Buffer.from('what is signed');
const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

describe('SoftHSM 2: keys in a PKCS #11 token (skipped where it is not installed)', function () {
  this.timeout(60_000);
  let hsm: SoftHsm;
  const opened: RunningSigners[] = [];
  const open = (env: NodeJS.ProcessEnv = {}): RunningSigners => {
    const all = { ...process.env, ...hsm.env, ...env };
    const signers = openExternalSigners(readSignerEnvironment(all), all);
    opened.push(signers);
    return signers;
  };
  before(async function () {
    const missing = await softHsmMissing();
    if (missing !== null) return this.skip();
    hsm = createSoftHsm();
  });
  afterEach(() => opened.splice(0).forEach((signers) => signers.close()));
  after(removeScratchFolders);

  it('KEY-039 a key is made in the token, found again and signs; the token will not export it', async () => {
    const signers = open();
    const made = await signers.create('pkcs11:token=compute;object=first');
    const again = await signers.create('pkcs11:token=compute;object=first');
    const found = await open().find(made.reference);
    assert.deepEqual([again.signer.spki, found.signer.spki], [made.signer.spki, made.signer.spki]);
    assert.ok(verifyRawSignature({ spki: made.signer.spki, input, signature: await found.signer.sign(input) }));
    const listed = hsm.tool('--list-objects', '--type', 'privkey');
    assert.match(listed, /label:\s+first/);
    assert.match(listed, /Access:\s+sensitive, always sensitive, never extractable, local/);
  });

  it('KEY-039 H-17 a key in the token signs the evidence of a large fleet, which names every machine', async () => {
    const { signer } = await open().create('pkcs11:token=compute;object=audit');
    const evidence = Buffer.alloc(5_000_000, 'a machine and its version, ');
    assert.ok(verifyRawSignature({ spki: signer.spki, input: evidence, signature: await signer.sign(evidence) }));
  });

  it('KEY-039 a key that OpenSC made is found by its id, and both give the same public key', async () => {
    hsm.tool('--keypairgen', '--key-type', 'EC:prime256v1', '--label', 'ceremony', '--id', 'a1b2', '--usage-sign', '--sensitive');
    const { signer, reference } = await open().find('pkcs11:token=compute;id=%a1%b2');
    assert.equal(reference, 'pkcs11:token=compute;id=%A1%B2');
    assert.ok(verifyRawSignature({ spki: signer.spki, input, signature: await signer.sign(input) }));
    const file = join(scratchFolder(), 'public.der');
    hsm.tool('--read-object', '--type', 'pubkey', '--id', 'a1b2', '--output-file', file);
    assert.deepEqual(readFileSync(file), Buffer.from(signer.spki));
  });

  const unsuitable: readonly [string, string[], RegExp][] = [
    ['another curve', ['--key-type', 'EC:secp384r1', '--usage-sign', '--sensitive'], /it is not on P-256$/],
    ['RSA', ['--key-type', 'rsa:2048', '--usage-sign', '--sensitive'], /it is no elliptic-curve key$/],
    ['a key that may be exported', ['--key-type', 'EC:prime256v1', '--usage-sign', '--extractable'], /the token would let it be exported$/],
  ];
  for (const [what, args, message] of unsuitable) {
    it(`KEY-039 ${what} is refused before it is used`, async () => {
      const label = what.replaceAll(' ', '-');
      hsm.tool('--keypairgen', '--label', label, ...args);
      const signers = open();
      const expected = refusal('INVALID_CONFIG', 'signer-key-unsuitable', message);
      await assert.rejects(signers.find(`pkcs11:token=compute;object=${label}`), expected);
    });
  }

  it('KEY-039 two keys of one name are refused, not chosen from', async () => {
    for (const id of ['01', '02'])
      hsm.tool('--keypairgen', '--key-type', 'EC:prime256v1', '--label', 'twin', '--id', id, '--usage-sign', '--sensitive');
    await assert.rejects(
      open().find('pkcs11:token=compute;object=twin'),
      refusal('INVALID_CONFIG', 'signer-key-unsuitable', /several private keys have this name/),
    );
    assert.ok(await open().find('pkcs11:token=compute;object=twin;id=%02'));
  });

  it('KEY-039 what is not there is named: the key, the token, the library', async () => {
    await assert.rejects(
      open().find('pkcs11:token=compute;object=none'),
      refusal('NOT_FOUND', 'signer-key-missing', /no private key of this name/),
    );
    await assert.rejects(
      open().find('pkcs11:token=other;object=none'),
      refusal('UNAVAILABLE', 'signer-unavailable', /there is no token other$/),
    );
    const signers = open({ BETTER_COMPUTE_PKCS11_MODULE: '/nowhere/lib.so' });
    await assert.rejects(
      signers.find('pkcs11:token=compute;object=none'),
      refusal('UNAVAILABLE', 'signer-unavailable', /\/nowhere\/lib\.so does not load/),
    );
  });

  it('KEY-039 a wrong PIN is tried once, however often the key is asked for', async () => {
    const own = createSoftHsm('locks');
    const pinFile = join(scratchFolder(), 'pin');
    writeFileSync(pinFile, 'wrong', { mode: 0o600 });
    const signers = open({ ...own.env, BETTER_COMPUTE_PKCS11_PIN_FILE: pinFile });
    const denied = refusal('PERMISSION_DENIED', 'signer-denied', /CKR_PIN_INCORRECT$/);
    await assert.rejects(signers.create('pkcs11:token=locks;object=a'), denied);
    // Even the right PIN is not tried by a process that was refused: it never counts the token down by itself.
    writeFileSync(pinFile, own.pin);
    await assert.rejects(signers.create('pkcs11:token=locks;object=a'), denied);
    assert.ok(await open({ ...own.env, BETTER_COMPUTE_PKCS11_PIN_FILE: pinFile }).create('pkcs11:token=locks;object=a'));
    await assert.rejects(
      open({ ...own.env, BETTER_COMPUTE_PKCS11_PIN_FILE: '/nowhere/pin' }).find('pkcs11:token=locks;object=a'),
      refusal('PERMISSION_DENIED', 'signer-denied', /the file with the PIN cannot be read \(ENOENT\)$/),
    );
  });

  it('KEY-039 SIGN-005 a signing worker certifies its key by a command root in the token, and machines take its commands', async () => {
    const signers = open();
    const commandRoot = await signers.create('pkcs11:token=compute;object=command-root');
    const path = join(scratchFolder(), 'pki.json');
    writeFileSync(path, encodeBundle(await createBundle({ trustDomain, now, external: { commandRoot } }), { secret }), { mode: 0o600 });
    const holder = await holdBundle({ store: createBundleFileStore(path), secret, signers: open(), log: silent });
    try {
      const root = holder.current().commandSigning;
      assert.ok(root !== undefined && root.privateKey === undefined);
      const worker = await createWorkerKey({
        root: { certificate: root.certificate.der, signer: root.signer() },
        now,
        lifetimeMs: 3_600_000,
        serial: createSerial(),
      });
      const body = Buffer.from('a command');
      const signature = await signCommand(worker, body);
      const signer = verifyIntent({ purpose: 'command', body, signature, roots: [root.certificate.der], now, required: true });
      assert.equal(signer?.rootId, root.id);
    } finally {
      holder.close();
    }
  });

  it('KEY-039 a bundle opens and shows without the token', async () => {
    const commandRoot = await open().create('pkcs11:token=compute;object=command-root');
    const text = encodeBundle(await createBundle({ trustDomain, now, external: { commandRoot } }), { secret });
    const elsewhere = openExternalSigners(readSignerEnvironment({}), {});
    const bundle = withExternalSigners(openBundle(text, { secret }), elsewhere);
    await assert.rejects(
      bundle.commandSigning?.signer().sign(input) ?? Promise.resolve(),
      refusal('MISSING_ENV', 'signer-not-configured', /BETTER_COMPUTE_PKCS11_MODULE is not set/),
    );
  });
});
