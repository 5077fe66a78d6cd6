import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readHostKeyText } from '../../domain/enrolment/host-key.ts';

/** The key part of a line of known_hosts. */
function ed25519Line(type = 'ssh-ed25519'): string {
  const raw = generateKeyPairSync('ed25519').publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  const text = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.from([0, 0, 0, bytes.length]), bytes]);
  return Buffer.concat([text(Buffer.from(type)), text(raw)]).toString('base64');
}

describe('a host key as it was given', () => {
  const digest = Buffer.alloc(32, 7).toString('base64').replace('=', '');

  it('XC-034 is the SHA-256 of the key, with or without padding, or the line of a public key', () => {
    for (const text of [`SHA256:${digest}`, `SHA256:${digest}=`])
      assert.deepEqual(readHostKeyText(text), { kind: 'fingerprint', fingerprint: `SHA256:${digest}` });
    const key = ed25519Line();
    for (const text of [`ssh-ed25519 ${key}`, `ssh-ed25519 ${key} root@gpu-17`])
      assert.deepEqual(readHostKeyText(text), { kind: 'key', type: 'ssh-ed25519', blob: new Uint8Array(Buffer.from(key, 'base64')) });
  });

  const refusals: readonly (readonly [text: string, why: RegExp])[] = [
    [Array(16).fill('ab').join(':'), /MD5/],
    [`MD5:${Array(16).fill('ab').join(':')}`, /MD5/],
    ['SHA1:2jmj7l5rSw0yVb/vlWAYkK/YBwk', /SHA-1/],
    [`SHA256:${digest} root@gpu-17`, /nothing after them/],
    [`SHA256:${digest}\n`, /nothing after them/],
    [`SHA256:${digest.slice(1)}`, /43 characters/],
    [`SHA256:${digest.slice(0, -1)}d`, /43 characters/],
    [`sha256:${digest}`, /43 characters/],
    ['', /neither/],
    [`ssh-dss ${ed25519Line()}`, /neither/],
    [`ssh-ed25519 ${ed25519Line('ssh-rsa')}`, /the line says ssh-ed25519, and its key is "ssh-rsa"/],
  ];
  for (const [text, why] of refusals)
    it(`enrolment 41 refuses ${JSON.stringify(text.slice(0, 40))}: ${why.source}`, () => {
      const read = readHostKeyText(text);
      assert.equal(read.kind, 'refused');
      assert.match(read.why, why);
    });
});
