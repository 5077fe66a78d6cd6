import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { hour } from '../../../domain/time.ts';
import {
  addExecTicketKey,
  describePins,
  encodeBundle,
  type PkiBundle,
  promoteExecTicketKey,
  readPublicBundle,
} from '../../../pki/bundle/index.ts';
import { jwkThumbprint } from '../../../pki/jose/index.ts';
import { edited, now, secret, sharedBundle } from '../support.ts';

describe('the pins of a bundle', () => {
  it('CLI-018 are these, under these names', async () => {
    const pins = describePins(readPublicBundle(encodeBundle(await sharedBundle(), { secret })), true);
    assert.deepEqual(Object.keys(pins), [
      'trustDomain',
      'authenticated',
      'seal',
      'generation',
      'trustVersion',
      'bundleDigest',
      'rootPin',
      'nodeCaPin',
      'servingCaPin',
      'internalCaPin',
      'joinSigningPin',
      'joinSigningKey',
      'joinEncryptionPin',
      'rekeyEncryptionPin',
      'auditPin',
      'execTicketKid',
      'execTicketNextKid',
      'execTicketFormerKid',
      'sshCaPublicKey',
      'sandboxSshCaPublicKey',
      'commandRoots',
      'signers',
      'rotation',
      'republish',
      'certificates',
    ]);
    assert.deepEqual(Object.keys(pins.certificates), ['rootCa', 'nodeCa', 'servingCa', 'internalCa']);
  });

  it('CLI-019 have the form sha256/<base64 of SHA-256(SPKI)>', async () => {
    const bundle = await sharedBundle();
    const pins = describePins(readPublicBundle(encodeBundle(bundle, { secret })), true);
    const pin = (spki: Uint8Array): string => `sha256/${createHash('sha256').update(spki).digest('base64')}`;
    assert.equal(pins.servingCaPin, pin(bundle.servingCa.certificate.publicKey.export({ type: 'spki', format: 'der' })));
    assert.equal(pins.joinSigningPin, pin(Buffer.from(pins.joinSigningKey, 'base64')));
    assert.equal(pins.commandRoots[0]?.pin, pin(bundle.commandSigning?.spki ?? new Uint8Array()));
  });

  it('CLI-044 a certificate appended behind the first changes the digest and not the pin', async () => {
    const text = encodeBundle(await sharedBundle(), { plaintext: true });
    const before = describePins(readPublicBundle(text), false);
    const after = describePins(
      readPublicBundle(edited(text, (d) => d.keys.nodeCa.certificates.push(d.keys.servingCa.certificates[0]))),
      false,
    );
    assert.equal(after.nodeCaPin, before.nodeCaPin);
    assert.notEqual(after.certificates.nodeCa.sha256, before.certificates.nodeCa.sha256);
    assert.deepEqual([before.certificates.nodeCa.count, after.certificates.nodeCa.count], [1, 2]);
  });

  it('name the keys that are kept elsewhere, and the ticket keys of an exchange', async () => {
    const bundle = await sharedBundle();
    const { bundle: added } = addExecTicketKey(bundle, { now });
    const { bundle: promoted } = promoteExecTicketKey(added, { now: now + hour });
    const pinsOf = (of: PkiBundle) => describePins(readPublicBundle(encodeBundle(of, { secret })), true);
    const kids = ({ execTicketKid, execTicketNextKid, execTicketFormerKid }: ReturnType<typeof pinsOf>) => [
      execTicketKid,
      execTicketNextKid,
      execTicketFormerKid,
    ];
    const [first, next] = [bundle.execTicketKey, added.execTicketKeyNext].map((key) => jwkThumbprint(key?.spki ?? new Uint8Array()));
    assert.deepEqual(
      [bundle, added, promoted].map((of) => kids(pinsOf(of))),
      [
        [first, null, null],
        [first, next, null],
        [next, null, first],
      ],
    );
    assert.deepEqual(pinsOf(bundle).signers, {});
    const reference = 'pkcs11:token=bc;object=root';
    const text = edited(encodeBundle(bundle, { plaintext: true }), (document) => {
      document.keys.rootCa.signer = reference;
      delete document.privateKeys.rootCa;
    });
    assert.deepEqual(describePins(readPublicBundle(text), false).signers, { rootCa: reference });
  });

  it('A-PKI-04 the exec ticket kid is the RFC 7638 thumbprint', async () => {
    const { execTicketKey } = await sharedBundle();
    const { crv, kty, x, y } = execTicketKey?.publicKey.export({ format: 'jwk' }) ?? {};
    const expected = createHash('sha256').update(`{"crv":"${crv}","kty":"${kty}","x":"${x}","y":"${y}"}`).digest('base64url');
    assert.equal(jwkThumbprint(execTicketKey?.spki ?? new Uint8Array()), expected);
  });
});
