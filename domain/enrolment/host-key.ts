/**
 * Which host key a machine must show before anything is said to it (XC-034). One form: the SHA-256 of the key as `ssh-keygen -lf` prints it. Trust on
 * first use does not exist here, and what has been broken (MD5, SHA-1) names no key.
 */
const form = /^SHA256:([A-Za-z0-9+/]{43})=?$/;
const keyLine = /^(ssh-ed25519|ecdsa-sha2-nistp(?:256|384|521)|ssh-rsa) ([A-Za-z0-9+/]{40,4096}={0,2})(?: [^\r\n]{0,200})?$/;

/** A host key as it was given: a fingerprint, or the line of a `.pub` file, whose fingerprint the caller computes. */
export type HostKeyText =
  | { readonly kind: 'fingerprint'; readonly fingerprint: string }
  | { readonly kind: 'key'; readonly type: string; readonly blob: Uint8Array }
  | { readonly kind: 'refused'; readonly why: string };

export function readHostKeyText(text: string): HostKeyText {
  const [, digest] = form.exec(text) ?? [];
  if (digest !== undefined && isCanonical(digest)) return { kind: 'fingerprint', fingerprint: `SHA256:${digest}` };
  const [, type, encoded] = keyLine.exec(text) ?? [];
  if (type !== undefined && encoded !== undefined) return readKey(type, encoded);
  return { kind: 'refused', why: whyNot(text) };
}

/** 43 characters hold 258 bits: the last two must be zero, or two texts would name one key. */
const isCanonical = (digest: string): boolean => Buffer.from(digest, 'base64').toString('base64').replace('=', '') === digest;

function readKey(type: string, encoded: string): HostKeyText {
  const blob = Buffer.from(encoded, 'base64');
  const named = blob.length > 4 ? blob.subarray(4, 4 + blob.readUInt32BE(0)).toString('latin1') : '';
  if (named === type) return { kind: 'key', type, blob: new Uint8Array(blob) };
  return { kind: 'refused', why: `the line says ${type}, and its key is ${named === '' ? 'none' : JSON.stringify(named.slice(0, 40))}` };
}

function whyNot(text: string): string {
  if (/^(MD5:)?([0-9a-f]{2}:){15}[0-9a-f]{2}$/i.test(text)) return 'it is an MD5 fingerprint: those can be forged';
  if (/^SHA1:/i.test(text)) return 'it is a SHA-1 fingerprint: those can be forged';
  if (/^SHA256:/i.test(text)) return 'a SHA-256 fingerprint has 43 characters of base64 behind SHA256:, and nothing after them';
  return 'it is neither SHA256:… nor the line of a public key';
}
