import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { day, hour, minute } from '../../../domain/time.ts';
import { certificateAuthorityOf, createAuthorities } from '../../../pki/authority/index.ts';
import { type CommandRoot, createCommandRoot, type PkiBundle } from '../../../pki/bundle/index.ts';
import {
  createWorkerKey,
  maxWorkerLifetimeMs,
  signCommand,
  signDesiredState,
  signEnvelope,
  type VerifyIntentOptions,
  verifyIntent,
  type WorkerKey,
} from '../../../pki/envelope/index.ts';
import {
  type CertificateTemplate,
  createCertificate,
  createSerial,
  kidOf,
  parseCertificate,
  type Signer,
  signerFromPrivateKey,
  spkiOf,
} from '../../../pki/x509/index.ts';
import { type Signature, SignatureSchema } from '../../../proto/index.ts';
import { now, refusal, sharedBundle, trustDomain } from '../support.ts';

const body = Buffer.from('an encoded CommandBody');
const newKey = (): { signer: Signer; spki: Uint8Array } => {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { signer: signerFromPrivateKey(privateKey), spki: spkiOf(publicKey) };
};

const workerSubject = [{ oid: '2.5.4.11', value: 'bc-role:worker' }];

describe('verifyIntent', () => {
  let bundle: PkiBundle;
  let root: CommandRoot;
  let worker: WorkerKey;
  let signature: Signature;
  before(async () => {
    bundle = await sharedBundle();
    root = bundle.commandSigning as CommandRoot;
    worker = await workerUnder(root);
    signature = await signCommand(worker, body);
  });

  const workerUnder = (under: CommandRoot, lifetimeMs = day): Promise<WorkerKey> =>
    createWorkerKey({ root: certificateAuthorityOf(under), now, lifetimeMs, serial: createSerial() });

  const options = (change: Partial<VerifyIntentOptions> = {}): VerifyIntentOptions => ({
    purpose: 'command',
    body,
    signature,
    roots: [root.certificate.der],
    now,
    required: true,
    ...change,
  });

  /** A certificate the product would never issue, signed by the root, and a good signature by its key. */
  const odd = async (change: Partial<CertificateTemplate>, under: CommandRoot = root): Promise<Signature> => {
    const key = newKey();
    const template: CertificateTemplate = {
      serial: createSerial(),
      subject: workerSubject,
      notBefore: now - minute,
      notAfter: now + hour,
      spki: key.spki,
      isCa: false,
      pathLen: null,
      keyUsage: ['digitalSignature'],
      ekus: [],
      uriSans: [],
      dnsSans: [],
      ipSans: [],
      ...change,
    };
    const certificate = await createCertificate({ template, issuer: { certificate: under.certificate.der }, signer: under.signer() });
    return withChain(await signEnvelope(key.signer, 'command', [body]), [certificate]);
  };
  const withChain = (base: Signature, chain: Uint8Array[]): Signature => create(SignatureSchema, { sig: base.sig, kid: base.kid, chain });

  it('SIGN-002 SIGN-005 SIGN-017 accepts a worker under a held root and says who it was', () => {
    assert.deepEqual(verifyIntent(options()), {
      kid: kidOf(worker.signer.spki),
      rootId: root.id,
      serial: worker.serial,
      notAfter: worker.notAfter,
    });
  });

  it('SIGN-003 SIGN-004 SIGN-006 a worker certificate: role worker, a day at most, no extended key usage', async () => {
    const long = parseCertificate((await workerUnder(root, 48 * hour)).certificate);
    assert.equal(long.role, 'worker');
    assert.equal(long.ekus, null);
    assert.equal(long.notAfter - now, maxWorkerLifetimeMs);
  });

  it('SIGN-011 SIGN-012 unsigned: refused where it is required, null where it is not', () => {
    assert.throws(
      () => verifyIntent(options({ signature: undefined })),
      refusal('BAD_SIGNATURE', 'unsigned', /^the command is not signed$/),
    );
    assert.equal(verifyIntent(options({ signature: undefined, required: false })), null);
  });

  it('SIGN-010 A-PKI-22 a signature that is present counts, also where none is required and no root is held', () => {
    const bad = withChain(signature, [...signature.chain]);
    bad.sig = bad.sig.toReversed();
    assert.throws(
      () => verifyIntent(options({ signature: bad, required: false })),
      refusal('BAD_SIGNATURE', 'bad-signature', /does not match/),
    );
    assert.throws(
      () => verifyIntent(options({ roots: [], required: false })),
      refusal('BAD_SIGNATURE', 'unknown-root', /none of the 0 held roots/),
    );
  });

  it('SIGN-015 other bytes, another purpose and another signature are refused', async () => {
    assert.throws(() => verifyIntent(options({ body: Buffer.from('other') })), refusal('BAD_SIGNATURE', 'bad-signature', /does not match/));
    assert.throws(() => verifyIntent(options({ purpose: 'desired-state' })), refusal('BAD_SIGNATURE', 'bad-signature', /desired-state/));
    assert.ok(verifyIntent(options({ purpose: 'desired-state', signature: await signDesiredState(worker, body) })));
  });

  it('SIGN-017 ROT-034 a worker under a root that is not held is refused', async () => {
    const other = await createCommandRoot({ trustDomain, now });
    assert.throws(
      () => verifyIntent(options({ roots: [other.certificate.der] })),
      refusal('BAD_SIGNATURE', 'unknown-root', /none of the 1 held roots/),
    );
  });

  it('C35 of two roots with one subject, the key decides, in both orders', async () => {
    const twin = await createCommandRoot({ trustDomain, now });
    assert.deepEqual(twin.certificate.subject.der, root.certificate.subject.der);
    const ders = [root.certificate.der, twin.certificate.der];
    const byTwin = await signCommand(await workerUnder(twin), body);
    for (const roots of [ders, ders.toReversed()]) {
      assert.equal(verifyIntent(options({ roots }))?.rootId, root.id);
      assert.equal(verifyIntent(options({ roots, signature: byTwin }))?.rootId, twin.id);
    }
  });

  it('SIGN-005 a node, a gateway, an internal and a CA certificate sign nothing', async () => {
    const authorities = createAuthorities(bundle);
    const key = newKey();
    const base = { spki: key.spki, now };
    const issued = await Promise.all([
      authorities.issueNode({ ...base, identity: { trustDomain, siteId: 's1', nodeId: 'n1' }, role: 'node' }),
      authorities.issueGateway({ ...base, dns: ['gw.example.com'] }),
      authorities.issueInternal({ ...base, dns: ['api'], role: 'worker-tls' }),
    ]);
    const plain = await signEnvelope(key.signer, 'command', [body]);
    // Trusting every authority of the deployment as a command root must not help either.
    const roots = [bundle.nodeCa, bundle.servingCa, bundle.internalCa, root].map(({ certificate }) => certificate.der);
    for (const { certificate } of issued) {
      assert.throws(
        () => verifyIntent(options({ roots, signature: withChain(plain, [certificate.der]) })),
        refusal('BAD_SIGNATURE', 'not-a-worker', /is not a worker's \(role [a-z-]+\)/),
      );
    }
    const byRoot = withChain(await signEnvelope(root.signer(), 'command', [body]), [root.certificate.der]);
    assert.throws(() => verifyIntent(options({ signature: byRoot })), refusal('BAD_SIGNATURE', 'not-a-worker', /an authority/));
  });

  it('SIGN-005 a certificate under the root without the role, without the usage or with CA rights is no worker', async () => {
    const cases: Partial<CertificateTemplate>[] = [
      { subject: [{ oid: '2.5.4.11', value: 'bc-role:root-worker' }] },
      { subject: [{ oid: '2.5.4.3', value: 'worker' }] },
      { keyUsage: ['keyAgreement'] },
      { isCa: true, pathLen: 0, keyUsage: ['digitalSignature', 'keyCertSign'] },
    ];
    for (const change of cases) {
      const bad = await odd(change);
      assert.throws(
        () => verifyIntent(options({ signature: bad })),
        refusal('BAD_SIGNATURE', 'not-a-worker', /is not a worker's/),
        JSON.stringify(change),
      );
    }
  });

  it('SIGN-003 a worker certificate that lives longer than a day is refused, even by its own root', async () => {
    const span = (lifetimeMs: number) => odd({ notBefore: now - minute, notAfter: now + lifetimeMs });
    assert.ok(verifyIntent(options({ signature: await span(day) })));
    const long = await span(day + 1000);
    assert.throws(
      () => verifyIntent(options({ signature: long })),
      refusal('BAD_SIGNATURE', 'lifetime', /lives 86461 s, longer than 86400 s/),
    );
    const short = await span(hour);
    assert.throws(
      () => verifyIntent(options({ signature: short, maxWorkerLifetimeMs: hour - 1000 })),
      refusal('BAD_SIGNATURE', 'lifetime', /longer than 3599 s/),
    );
  });

  it('SIGN-005 valid now: 60 s of skew before its beginning, none after its end', () => {
    const { notBefore, notAfter } = worker;
    assert.ok(verifyIntent(options({ now: notBefore - minute })));
    assert.throws(
      () => verifyIntent(options({ now: notBefore - minute - 1 })),
      refusal('BAD_SIGNATURE', 'signer-not-yet-valid', /is valid from 2026-01-15T11:59:00Z/),
    );
    assert.ok(verifyIntent(options({ now: notAfter + 999 })));
    assert.throws(
      () => verifyIntent(options({ now: notAfter + 1000 })),
      refusal('BAD_SIGNATURE', 'signer-expired', /expired at 2026-01-16T12:00:00Z/),
    );
  });

  it('a root past its own end certifies nobody, whatever its certificates say', async () => {
    const old = await createCommandRoot({ trustDomain, now: now - 10 * 365 * day });
    const end = old.certificate.notAfter;
    const outliving = await odd({ notBefore: end - minute, notAfter: end + hour }, old);
    const at = (instant: number) => options({ roots: [old.certificate.der], now: instant, signature: outliving });
    assert.ok(verifyIntent(at(end + 999)));
    assert.throws(() => verifyIntent(at(end + 1000)), refusal('BAD_SIGNATURE', 'root-expired', /command root [0-9a-f]{64} is valid from/));
  });

  it('SIGN-017 the chain is the worker certificate alone: none, two and an intermediate are refused', async () => {
    const [leaf] = signature.chain as [Uint8Array];
    for (const chain of [[], [leaf, root.certificate.der], [leaf, leaf], Array.from({ length: 5000 }, () => leaf)]) {
      assert.throws(
        () => verifyIntent(options({ signature: withChain(signature, chain) })),
        refusal('BAD_SIGNATURE', 'chain', new RegExp(`carries ${chain.length} certificates, not 1`)),
      );
    }
    assert.throws(
      () => verifyIntent(options({ signature: withChain(signature, [leaf.subarray(1)]) })),
      refusal('BAD_SIGNATURE', 'chain', /does not parse/),
    );
    assert.throws(
      () => verifyIntent(options({ signature: withChain(signature, [Buffer.concat([leaf, Buffer.from([0])])]) })),
      refusal('BAD_SIGNATURE', 'chain', /does not parse/),
    );
  });

  it('a stolen certificate with another key, and a certificate signed by another key under the name of the root', async () => {
    const thief = newKey();
    const stolen = withChain(await signEnvelope(thief.signer, 'command', [body]), signature.chain);
    assert.throws(() => verifyIntent(options({ signature: stolen })), refusal('BAD_SIGNATURE', 'other-key', /names key/));
    stolen.kid = signature.kid;
    assert.throws(() => verifyIntent(options({ signature: stolen })), refusal('BAD_SIGNATURE', 'bad-signature', /does not match/));
    const forger = await createCommandRoot({ trustDomain, now });
    const key = newKey();
    const template: CertificateTemplate = {
      serial: createSerial(),
      subject: workerSubject,
      notBefore: now,
      notAfter: now + hour,
      spki: key.spki,
      isCa: false,
      pathLen: null,
      keyUsage: ['digitalSignature'],
      ekus: [],
      uriSans: [],
      dnsSans: [],
      ipSans: [],
    };
    const certificate = await createCertificate({ template, issuer: { certificate: forger.certificate.der }, signer: forger.signer() });
    const forged = withChain(await signEnvelope(key.signer, 'command', [body]), [certificate]);
    assert.throws(() => verifyIntent(options({ signature: forged })), refusal('BAD_SIGNATURE', 'unknown-root', /none of the 1/));
  });

  it('ENV-003 a signature of another length is refused first', () => {
    const short = withChain(signature, signature.chain);
    short.sig = short.sig.subarray(0, 63);
    assert.throws(() => verifyIntent(options({ signature: short })), refusal('BAD_SIGNATURE', 'signature-length', /63 bytes/));
  });
});
