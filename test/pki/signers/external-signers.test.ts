/** Signers that are slow, down, wrong or exchanged: nothing of theirs gets into a certificate. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { ControlError } from '../../../domain/errors.ts';
import {
  addCommandRoot,
  createBundle,
  encodeBundle,
  openBundle,
  readPublicBundle,
  withExternalSigners,
} from '../../../pki/bundle/index.ts';
import { createWorkerKey } from '../../../pki/envelope/index.ts';
import { createExternalSigners, type ExternalSigners, type KeyService, maxInputBytes } from '../../../pki/signers/index.ts';
import { createSerial, issueCa, issueLeaf, spkiOf, verifyRawSignature } from '../../../pki/x509/index.ts';
import { edited, now, refusal, trustDomain } from '../support.ts';

/** Keys in memory behind the port, as a token would hold them, and a deadline that ends when the test says so. */
class Rig {
  readonly keys = new Map<string, KeyObject>();
  readonly ends: (() => void)[] = [];
  signals: AbortSignal[] = [];
  /** What happens to a signature on its way. */
  answer: (signature: Uint8Array) => Promise<Uint8Array> = async (signature) => signature;

  readonly service: { -readonly [K in keyof KeyService]: KeyService[K] } = {
    publicKey: async (key) => spkiOf(this.#get(key)),
    createKey: async (key) => {
      if (!this.keys.has(key)) this.keys.set(key, generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
      return spkiOf(this.#get(key));
    },
    sign: async ({ key, input }, signal) => {
      this.signals.push(signal);
      return this.answer(sign('sha256', input, { key: this.#get(key), dsaEncoding: 'ieee-p1363' }));
    },
  };
  readonly signers: ExternalSigners = createExternalSigners({
    services: { pkcs11: this.service, external: this.service },
    deadline: {
      ms: 5_000,
      startTimer: (_ms, onEnd) => {
        this.ends.push(onEnd);
        return () => void this.ends.splice(this.ends.indexOf(onEnd), 1);
      },
    },
  });

  #get(key: string): KeyObject {
    const found = this.keys.get(key);
    if (found !== undefined) return found;
    throw new ControlError('NOT_FOUND', `no key ${key}`, { details: { reason: 'signer-key-missing' } });
  }
}

const places = {
  rootCa: 'pkcs11:token=bc;object=root-ca',
  commandRoot: 'pkcs11:token=bc;object=command-root',
  auditSigning: 'external:audit',
} as const;

describe('signers outside of the bundle', () => {
  let rig: Rig;
  beforeEach(() => {
    rig = new Rig();
  });

  const createExternalBundle = async () => {
    const [rootCa, commandRoot, auditSigning] = await Promise.all(Object.values(places).map((place) => rig.signers.create(place)));
    assert.ok(rootCa && commandRoot && auditSigning);
    return createBundle({ trustDomain, now, external: { rootCa, commandRoot, auditSigning } });
  };

  it('KEY-039 a bundle whose command root, root CA and audit key are kept elsewhere holds no private half of theirs, and signs with them', async () => {
    const text = encodeBundle(await createExternalBundle(), { plaintext: true });
    const { privateKeys } = JSON.parse(text) as { privateKeys: Record<string, string> };
    assert.deepEqual(
      Object.keys(privateKeys).filter((name) => /rootCa|auditSigning|commandRoot/.test(name)),
      [],
    );
    const opened = withExternalSigners(openBundle(text), rig.signers);
    for (const key of [opened.rootCa, opened.auditSigning, opened.commandSigning]) {
      assert.ok(key !== undefined && key.privateKey === undefined);
      const input = Buffer.from('what is signed');
      assert.ok(verifyRawSignature({ spki: key.spki, input, signature: await key.signer().sign(input) }));
    }
    assert.equal(encodeBundle(opened, { plaintext: true }), text);
  });

  it('KEY-039 opens, shows and verifies without its signers; what would sign says where the key is', async () => {
    const text = encodeBundle(await createExternalBundle(), { plaintext: true });
    const opened = openBundle(text);
    assert.equal(readPublicBundle(text).commandRootsById.get(opened.commandRoots.signing)?.signerReference, places.commandRoot);
    assert.throws(
      () => opened.commandSigning?.signer(),
      refusal('INVALID_STATE', 'key-external', /kept by pkcs11:token=bc;object=command-root/),
    );
    assert.throws(() => opened.rootCa.signer(), refusal('INVALID_STATE', 'key-external', /private key of rootCa is kept by/));
  });

  it('KEY-039 ROT-006 a rotation makes the next root beside the present one, and the same one again when the step is repeated', async () => {
    const bundle = withExternalSigners(await createExternalBundle(), rig.signers);
    const first = await addCommandRoot(bundle, { rotationId: 'r1', now });
    const root = [...first.bundle.commandRootsById.values()].find(({ id }) => id !== bundle.commandSigning?.id);
    assert.equal(root?.signerReference, 'pkcs11:token=bc;object=command-root-r1');
    const again = await addCommandRoot(bundle, { rotationId: 'r1', now });
    const second = [...again.bundle.commandRootsById.values()].at(-1);
    assert.deepEqual(second?.spki, root?.spki);
    const unreached = openBundle(encodeBundle(bundle, { plaintext: true }));
    await assert.rejects(
      addCommandRoot(unreached, { rotationId: 'r1', now }),
      refusal('INVALID_STATE', 'key-external', /new root's key is kept by/),
    );
  });

  it('KEY-039 a rotation moves the root out of the bundle where a place is named', async () => {
    const bundle = await createBundle({ trustDomain, now });
    const { bundle: next } = await addCommandRoot(bundle, {
      rotationId: 'r1',
      now,
      reference: places.commandRoot,
      keyAt: rig.signers.create,
    });
    const text = encodeBundle(next, { plaintext: true });
    assert.deepEqual(
      [...openBundle(text).commandRootsById.values()].map((root) => [root.privateKey !== undefined, root.signerReference]),
      [
        [true, undefined],
        [false, places.commandRoot],
      ],
    );
  });

  const tampered: readonly [string, (document: any) => void, RegExp][] = [
    ['a reference that is none', (d) => (d.keys.rootCa.signer = 'file:/x'), /keys\.rootCa\.signer is no signer reference/],
    [
      'a reference in another form',
      (d) => (d.keys.rootCa.signer = 'pkcs11:object=root-ca;token=bc'),
      /keys\.rootCa\.signer is no signer reference/,
    ],
    [
      'a signer for a key that only the bundle keeps',
      (d) => (d.keys.nodeCa.signer = 'external:x'),
      /keys\.nodeCa\.signer is a key that only the bundle keeps/,
    ],
    [
      'a signer beside a private half',
      (d) => (d.commandRoots.roots[0].signer = 'external:x'),
      /commandRoot:\w+ has a private key here and another place too/,
    ],
  ];
  for (const [what, change, message] of tampered) {
    it(`KEY-039 refuses a bundle with ${what}`, async () => {
      const [rootCa] = [await rig.signers.create(places.rootCa)];
      const text = encodeBundle(await createBundle({ trustDomain, now, external: { rootCa } }), { plaintext: true });
      assert.throws(() => openBundle(edited(text, change)), refusal('INVALID_CONFIG', 'bundle-invalid', message));
    });
  }

  it('KEY-039 a signature of another key is refused before anything is made of it', async () => {
    const { signer } = await rig.signers.create(places.commandRoot);
    const other = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    rig.answer = async () => sign('sha256', Buffer.from('anything'), { key: other, dsaEncoding: 'ieee-p1363' });
    const wrong = refusal(
      'BAD_SIGNATURE',
      'signer-wrong',
      /pkcs11:token=bc;object=command-root answered a signature that is not its key's/,
    );
    await assert.rejects(signer.sign(Buffer.from('x')), wrong);
    await assert.rejects(issueCa({ profile: 'commandRoot', trustDomain, spki: signer.spki, issuer: { self: signer }, now }), wrong);
  });

  for (const [what, change] of [
    ['empty', () => new Uint8Array()],
    ['DER instead of raw', () => sign('sha256', Buffer.from('x'), [...rig.keys.values()][0] as KeyObject)],
    ['one bit off', (good: Uint8Array) => good.map((byte, at) => (at === 40 ? byte ^ 1 : byte))],
    ['cut short', (good: Uint8Array) => good.subarray(0, 63)],
    ['too long', (good: Uint8Array) => Buffer.concat([good, Buffer.of(0)])],
  ] as const) {
    it(`KEY-039 a signature that is ${what} is refused`, async () => {
      const { signer } = await rig.signers.create(places.auditSigning);
      rig.answer = async (good) => change(good);
      await assert.rejects(signer.sign(Buffer.from('x')), refusal('BAD_SIGNATURE', 'signer-wrong', /external:audit/));
    });
  }

  it('KEY-039 no worker key and no leaf comes of a signer that fails only now and then', async () => {
    const bundle = withExternalSigners(openBundle(encodeBundle(await createExternalBundle(), { plaintext: true })), rig.signers);
    const root = bundle.commandSigning;
    assert.ok(root !== undefined);
    let count = 0;
    rig.answer = async (good) => ((count += 1) % 2 === 0 ? good.map((byte) => byte ^ 1) : good);
    const make = () =>
      createWorkerKey({
        root: { certificate: root.certificate.der, signer: root.signer() },
        now,
        lifetimeMs: 60_000,
        serial: createSerial(),
      });
    assert.equal((await make()).rootId, root.id);
    await assert.rejects(make(), refusal('BAD_SIGNATURE', 'signer-wrong', /not its key's/));
  });

  it('KEY-039 a bundle that holds the public half of another key gets no signature from this one', async () => {
    await rig.signers.create(places.commandRoot);
    const stranger = rig.signers.signerOf(places.commandRoot, spkiOf(generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey));
    await assert.rejects(stranger.sign(Buffer.from('x')), refusal('BAD_SIGNATURE', 'signer-wrong', /not its key's/));
  });

  it('KEY-039 a signer that does not answer is given up after its deadline, and its late answer is thrown away', async () => {
    const { signer } = await rig.signers.create(places.commandRoot);
    let answerNow = (): void => undefined;
    rig.answer = (good) => new Promise((resolve) => (answerNow = () => resolve(good)));
    const asked = signer.sign(Buffer.from('x'));
    await Promise.resolve();
    rig.ends.at(-1)?.();
    await assert.rejects(
      asked,
      refusal('UNAVAILABLE', 'signer-deadline', /pkcs11:token=bc;object=command-root did not answer within 5000 ms/),
    );
    assert.ok(rig.signals[0]?.aborted, 'whoever works on it is told to stop');
    answerNow();
    assert.deepEqual(rig.ends, [], 'no timer is left behind');
  });

  it('KEY-039 a signer that is down says so, and leaves no timer behind', async () => {
    const { signer } = await rig.signers.create(places.commandRoot);
    rig.answer = async () => {
      throw new ControlError('UNAVAILABLE', 'the token is gone', { details: { reason: 'signer-down' } });
    };
    await assert.rejects(signer.sign(Buffer.from('x')), refusal('UNAVAILABLE', 'signer-down', /the token is gone/));
    assert.deepEqual(rig.ends, []);
  });

  it('KEY-039 a caller that changes its bytes while they are signed changes nothing', async () => {
    const { signer } = await rig.signers.create(places.auditSigning);
    const input = Buffer.from('as it was');
    const asked = signer.sign(input);
    input.fill(0);
    assert.ok(verifyRawSignature({ spki: signer.spki, input: Buffer.from('as it was'), signature: await asked }));
  });

  it('KEY-039 a signer that writes into what it was given gets no signature of its own words through', async () => {
    const { signer } = await rig.signers.create(places.auditSigning);
    const { sign: honest } = rig.service;
    rig.service.sign = (request, signal) => {
      request.input.fill(0x21);
      return honest(request, signal);
    };
    await assert.rejects(signer.sign(Buffer.from('as it was')), refusal('BAD_SIGNATURE', 'signer-wrong', /answered a signature/));
  });

  it('KEY-039 what is answered stays as it was verified', async () => {
    const { signer } = await rig.signers.create(places.auditSigning);
    const given: Uint8Array[] = [];
    rig.answer = async (signature) => {
      given.push(signature);
      return signature;
    };
    const input = Buffer.from('as it was');
    const signature = await signer.sign(input);
    given[0]?.fill(0);
    assert.ok(verifyRawSignature({ spki: signer.spki, input, signature }));
  });

  it('KEY-039 more than a signer could be handed is refused before it is asked', async () => {
    const { signer } = await rig.signers.create(places.auditSigning);
    const refused = refusal('INVALID_INPUT', 'signer-input', /^external:audit is asked to sign 67108865 bytes, at most 67108864$/);
    await assert.rejects(signer.sign(Buffer.alloc(maxInputBytes + 1)), refused);
    assert.equal(rig.signals.length, 0);
  });

  it('KEY-039 a key that is not there is not invented', async () => {
    await assert.rejects(rig.signers.find(places.commandRoot), refusal('NOT_FOUND', 'signer-key-missing', /no key/));
  });

  it('KEY-039 a public key that is none is refused before it is pinned', async () => {
    const service = { ...rig.service, publicKey: async () => new Uint8Array(91) };
    const signers = createExternalSigners({
      services: { pkcs11: service, external: service },
      deadline: { ms: 1, startTimer: () => () => undefined },
    });
    await assert.rejects(
      signers.find(places.auditSigning),
      (error: unknown) => error instanceof ControlError && error.code === 'MALFORMED',
    );
  });

  it('KEY-039 a certificate of an authority kept elsewhere is checked like any other', async () => {
    const bundle = withExternalSigners(await createExternalBundle(), rig.signers);
    const ca = { certificate: bundle.rootCa.certificate.der, signer: bundle.rootCa.signer() };
    await assert.rejects(
      issueLeaf({ ca, profile: 'gateway', spki: bundle.joinSigning.spki, sans: { dns: ['gw.example'] }, now }),
      refusal('PERMISSION_DENIED', 'wrong-issuer', /./),
    );
  });
});
