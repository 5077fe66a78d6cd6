import assert from 'node:assert/strict';
import {
  createCsr,
  type DerNode,
  encodeDer,
  encodeDerNode,
  encodeDerSequence,
  issueLeaf,
  oids,
  parseCsr,
} from '../../../pki/x509/index.ts';
import { createAuthorities, createKey, now, refusedWith, trustDomain } from './authorities.ts';
import { node, replaceAt, signed } from './tampering.ts';
import { describeVectors, listVectors, readJsonVectors, readVectors } from './vectors.ts';

const hex = (text: string): Buffer => Buffer.from(text.replace(/ /g, ''), 'hex');

describe('pki/x509 certificate requests', () => {
  const key = createKey();
  const request = (): Promise<Uint8Array> => createCsr({ key: key.signer });
  /** A request with its signed part changed, signed again. */
  const changed = async (path: readonly number[], change: (found: DerNode) => DerNode | readonly DerNode[] | null): Promise<Uint8Array> =>
    signed(encodeDerNode(replaceAt(node(await request()).children?.[0] as DerNode, path, change)), key);

  it('proves possession of the key, and hands on the key and nothing else', async () => {
    for (const der of [
      await request(),
      await createCsr({ key: key.privateKey }),
      await createCsr({ key: key.signer, subject: [{ oid: oids.commonName, value: 'n1' }] }),
    ]) {
      const parsed = parseCsr(der);
      assert.deepEqual(Object.keys(parsed).sort(), ['der', 'spki']);
      assert.deepEqual(Buffer.from(parsed.spki), Buffer.from(key.spki));
      assert.deepEqual(Buffer.from(parsed.der), Buffer.from(der));
    }
  });

  it('refuses a signature by another key, and one changed bit', async () => {
    const other = createKey();
    const info = node(await request()).children?.[0] as DerNode;
    const der = await signed(encodeDerNode(info), other);
    assert.throws(() => parseCsr(der), refusedWith('BAD_SIGNATURE', 'request-signature', /not signed by its own key/));
  });

  const attribute = (oid: string, ...values: Uint8Array[]): Uint8Array => encodeDerSequence(hex(oid), encodeDer(0x31, ...values));
  const cases: ReadonlyArray<readonly [name: string, make: () => Promise<Uint8Array>, reason: string, message: RegExp]> = [
    ['version 2', () => changed([0], () => node(hex('020101'))), 'version', /version 2, not 1/],
    ['no attributes', () => changed([3], () => null), 'der-truncated', /cut short/],
    ['something after the attributes', () => changed([3], (found) => [found, node(hex('0500'))]), 'der-trailing', /left over/],
    [
      'an attribute that stands twice',
      () => changed([3], () => node(encodeDer(0xa0, attribute('06032a0304', hex('0500')), attribute('06032a0304', hex('0500'))))),
      'duplicate-attribute',
      /1\.2\.3\.4 stands twice/,
    ],
    [
      'an attribute without a value',
      () => changed([3], () => node(encodeDer(0xa0, attribute('06032a0304')))),
      'attributes',
      /has no value/,
    ],
    [
      'attributes out of order',
      () => changed([3], () => node(encodeDer(0xa0, attribute('06032a0305', hex('0500')), attribute('06032a0304', hex('0500'))))),
      'der-set-order',
      /not in order/,
    ],
    ['trailing bytes', async () => Buffer.concat([await request(), Buffer.of(0)]), 'der-trailing', /left over/],
    ['more bytes than any request has', async () => new Uint8Array(8_193), 'too-large', /at most 8192/],
    [
      'NULL parameters',
      async () => signed(encodeDerNode(node(await request()).children?.[0] as DerNode), key, hex('300c06082a8648ce3d0403020500')),
      'signature-algorithm',
      /without parameters/,
    ],
  ];
  for (const [name, make, reason, message] of cases)
    it(`H-19 refuses ${name}`, async () => {
      const der = await make();
      assert.throws(() => parseCsr(der), refusedWith('MALFORMED', reason, message));
    });
});

describeVectors('pki/x509 generated certificate requests', ['generated-csr', 'EXPECTED.json'], () => {
  const said = readJsonVectors('generated-csr', 'EXPECTED.json') as Record<string, string>;
  const { nodeCa } = { nodeCa: createAuthorities().then((all) => all.nodeCa) };
  for (const file of listVectors('generated-csr', /\.der$/))
    it(`${file}: ${said[file]}`, async () => {
      const verdict = verdictOf(readVectors('generated-csr', file));
      const text = said[file] as string;
      if (/^reject\b(?!.*accept)/.test(text)) assert.equal(verdict, null);
      if (/^accept\b(?!.*\bor reject)/.test(text)) assert.notEqual(verdict, null);
      if (verdict === null) return;
      // Whatever the request asked for, the certificate says what the issuer decided and nothing else.
      const leaf = await issueLeaf({
        ca: await nodeCa,
        profile: 'node',
        spki: verdict.spki,
        identity: { trustDomain, siteId: 's', nodeId: 'n' },
        now,
      });
      assert.deepEqual(
        { isCa: leaf.isCa, role: leaf.role, uriSans: leaf.uriSans, dnsSans: leaf.dnsSans },
        { isCa: false, role: 'node', uriSans: ['spiffe://fleet.example/site/s/node/n'], dnsSans: [] },
      );
    });
});

const verdictOf = (der: Uint8Array): ReturnType<typeof parseCsr> | null => {
  try {
    return parseCsr(der);
  } catch (error) {
    assert.ok(['MALFORMED', 'BAD_SIGNATURE'].includes((error as { code: string }).code), String(error));
    return null;
  }
};

describeVectors('pki/x509 pyca certificate requests', ['pyca'], () => {
  it('never fails otherwise than by MALFORMED or BAD_SIGNATURE', () => {
    for (const file of listVectors('pyca', /\.(pem|der)$/)) verdictOf(readVectors('pyca', file));
  });
});
