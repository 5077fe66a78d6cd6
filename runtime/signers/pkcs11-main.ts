/**
 * The signer process of a PKCS #11 library: `node pkcs11-main <library> [<file with the PIN>]`, lines in, lines out. The library is
 * native code of a vendor; in here it can crash or hang alone.
 */
import { createInterface } from 'node:readline';
import { encodeAnswer, parseRequest, type SignerAnswer, type SignerRequest } from '../../pki/signers/index.ts';
import { openToken, type Token, TokenRefusal } from './pkcs11-token.ts';

const [library = '', pinFile] = process.argv.slice(2);

/** Opened by the first request: what is wrong with it is then somebody's answer. */
const open: { token?: Token } = {};

async function answer(request: SignerRequest): Promise<SignerAnswer> {
  const { id, key, input } = request;
  try {
    open.token ??= await openToken({ library, pinFile });
    const { token } = open;
    if (request.do === 'sign') return { id, signature: token.sign(key, input ?? new Uint8Array()) };
    return { id, publicKey: request.do === 'create-key' ? token.createKey(key) : token.publicKey(key) };
  } catch (error) {
    const refusal = error instanceof TokenRefusal ? error : TokenRefusal.of(error);
    // A token that went away is looked for anew by the next process, which the next request starts.
    if (refusal.code === 'unavailable') setImmediate(() => process.exit(0));
    return { id, error: { code: refusal.code, message: refusal.message } };
  }
}

// One after another: the library is driven by one thread and one session.
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(encodeAnswer(await answer(parseRequest(line))));
}
open.token?.close();
