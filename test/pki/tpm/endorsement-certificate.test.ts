/** A manufacturer's word for an endorsement key, judged by certificates that other code made. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import type { X509Certificate } from '@peculiar/x509';
import { day, second } from '../../../domain/time.ts';
import { parseEndorsementRoots, verifyEndorsementChain } from '../../../pki/tpm/index.ts';
import { endorse, type Maker, makerOf } from '../../harness/tpm-makers.ts';
import { t0 } from '../../services/support.ts';
import { refusal } from '../support.ts';

const spkiOfNew = (kind: 'ec' | 'rsa'): Uint8Array => {
  const { publicKey } =
    kind === 'ec' ? generateKeyPairSync('ec', { namedCurve: 'P-256' }) : generateKeyPairSync('rsa', { modulusLength: 2048 });
  return publicKey.export({ type: 'spki', format: 'der' });
};

describe('the certificate of an endorsement key', () => {
  const spki = spkiOfNew('ec');
  let root: Maker;
  let between: Maker;
  before(async () => {
    root = await makerOf('CN=Maker of TPMs');
    between = await makerOf('CN=Maker of TPMs 1', root);
  });
  const der = (certificates: readonly X509Certificate[]): Uint8Array[] => certificates.map(({ rawData }) => new Uint8Array(rawData));
  const judge = (
    certificates: readonly X509Certificate[],
    { of = spki, roots = [root], now = t0 }: { of?: Uint8Array; roots?: Maker[]; now?: number } = {},
  ) =>
    verifyEndorsementChain(der(certificates), {
      roots: parseEndorsementRoots(roots.map(({ certificate }) => certificate.toString('pem')).join('\n')),
      spki: of,
      now,
    });

  it('leads to a root that the operator named, directly or by what the TPM shows between; keys of RSA too', async () => {
    judge([await endorse(spki, root)]);
    judge([await endorse(spki, between), between.certificate]);
    judge([await endorse(spki, between)], { roots: [await makerOf('CN=Another maker'), between] });
    const rsa = spkiOfNew('rsa');
    judge([await endorse(rsa, root)], { of: rsa });
    judge([await endorse(spki, root, { uses: null })]);
    judge([await endorse(spki, root), between.certificate]);
  });

  it('is refused when it is of another key, use, maker or time, or there is none', async () => {
    const namesake = await makerOf('CN=Maker of TPMs');
    const tries: [X509Certificate[], 'PERMISSION_DENIED' | 'CERTIFICATE_EXPIRED', string, RegExp][] = [
      [[], 'PERMISSION_DENIED', 'tpm-ek-certificate', /showed no certificate/],
      [[await endorse(spkiOfNew('ec'), root)], 'PERMISSION_DENIED', 'tpm-ek-certificate', /of another endorsement key/],
      [[await endorse(spki, root, { isCa: true })], 'PERMISSION_DENIED', 'tpm-ek-certificate', /that of an authority/],
      [
        [await endorse(spki, root, { uses: ['1.3.6.1.5.5.7.3.2'] })],
        'PERMISSION_DENIED',
        'tpm-ek-certificate',
        /is for 1\.3\.6\.1\.5\.5\.7\.3\.2/,
      ],
      [[await endorse(spki, namesake)], 'PERMISSION_DENIED', 'tpm-ek-untrusted', /"CN=Maker of TPMs" leads to none of the 1 roots/],
      [[await endorse(spki, namesake), namesake.certificate], 'PERMISSION_DENIED', 'tpm-ek-untrusted', /leads to none/],
      [[await endorse(spki, between)], 'PERMISSION_DENIED', 'tpm-ek-untrusted', /"CN=Maker of TPMs 1" leads to none/],
      [[await endorse(spki, root, { until: t0 - second })], 'CERTIFICATE_EXPIRED', 'tpm-ek-expired', /"CN=TPM" is not in force/],
    ];
    for (const [certificates, code, reason, message] of tries) assert.throws(() => judge(certificates), refusal(code, reason, message));
    const good = [await endorse(spki, between, { until: t0 + 9 * day }), between.certificate];
    assert.throws(() => judge(good, { now: t0 + 2 * day }), refusal('CERTIFICATE_EXPIRED', 'tpm-ek-expired', /"CN=Maker of TPMs 1"/));
    assert.throws(() => judge(good, { now: t0 - 2 * day }), refusal('CERTIFICATE_EXPIRED', 'tpm-ek-expired', /is not in force/));
  });

  it('no certificate of a key certifies another one', async () => {
    const owner = await makerOf('CN=TPM of an owner', root);
    const leaf = await endorse(new Uint8Array(await crypto.subtle.exportKey('spki', owner.keys.publicKey)), root, {
      subject: 'CN=TPM of an owner',
    });
    const below = await endorse(spki, { keys: owner.keys, certificate: leaf });
    assert.throws(() => judge([below, leaf]), refusal('PERMISSION_DENIED', 'tpm-ek-untrusted', /leads to none/));
  });

  it('bytes that are none, too many, or too large are named; so is a file of roots that holds none', async () => {
    const one = await endorse(spki, root);
    const roots = parseEndorsementRoots(root.certificate.toString('pem'));
    const judgeBytes = (chain: Uint8Array[]) => () => verifyEndorsementChain(chain, { roots, spki, now: t0 });
    assert.throws(judgeBytes([Buffer.from('x')]), refusal('MALFORMED', 'tpm', /ekCertificates\[0\] is no certificate/));
    assert.throws(judgeBytes([Buffer.alloc(9_000)]), refusal('MALFORMED', 'tpm', /9000 bytes, more than 8192/));
    assert.throws(judgeBytes(der([one, one, one, one, one])), refusal('MALFORMED', 'tpm', /are 5, more than 4/));
    assert.throws(() => parseEndorsementRoots('nothing'), refusal('MALFORMED', 'tpm', /holds no PEM certificate/));
    assert.throws(
      () => parseEndorsementRoots(`${root.certificate.toString('pem')}\n${one.toString('pem')}`),
      refusal('MALFORMED', 'tpm', /certificate 2 of "CN=TPM" is not that of an authority/),
    );
  });
});
