/** A real process of the operator's behind the port, and everything it may do wrong. */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { type ExternalKey, encodeRequest, parseRequest } from '../../../pki/signers/index.ts';
import { verifyRawSignature } from '../../../pki/x509/index.ts';
import { openExternalSigners, type RunningSigners, readSignerEnvironment } from '../../../runtime/signers/external-signers.ts';
import { refusal } from '../../pki/support.ts';

const program = fileURLToPath(new URL('../fixtures/signer-program.mjs', import.meta.url));
const input = Buffer.from('what is signed');

describe('a signer program', function () {
  this.timeout(20_000);
  const opened: RunningSigners[] = [];
  const open = (env: NodeJS.ProcessEnv = {}): RunningSigners => {
    const all = { ...process.env, BETTER_COMPUTE_SIGNER_COMMAND: program, ...env };
    const signers = openExternalSigners(readSignerEnvironment(all), all);
    opened.push(signers);
    return signers;
  };
  afterEach(() => opened.splice(0).forEach((signers) => signers.close()));
  const works = async ({ signer }: ExternalKey): Promise<void> =>
    assert.ok(verifyRawSignature({ spki: signer.spki, input, signature: await signer.sign(input) }));

  it('KEY-039 gives its public key and signs, many at once', async () => {
    const signers = open();
    const key = await signers.find('external:alias/command-root');
    assert.equal(key.reference, 'external:alias/command-root');
    await Promise.all(Array.from({ length: 50 }, () => works(key)));
  });

  it('KEY-039 H-17 signs the evidence of a large fleet, which names every machine', async () => {
    const { signer } = await open().find('external:alias/audit');
    const evidence = Buffer.alloc(5_000_000, 'a machine and its version, ');
    assert.ok(verifyRawSignature({ spki: signer.spki, input: evidence, signature: await signer.sign(evidence) }));
    const request = { id: 1, do: 'sign', key: 'audit', input: evidence } as const;
    assert.ok(evidence.equals(parseRequest(encodeRequest(request)).input ?? new Uint8Array()), 'our own token process reads it too');
  });

  const faults: readonly [string, Parameters<typeof refusal>][] = [
    ['crashes', ['UNAVAILABLE', 'signer-down', /^the signer \S+ ended \(exit code 3\): the key service is gone \[31m$/]],
    ['garbage', ['UNAVAILABLE', 'signer-down', /said something that is not the protocol$/]],
    ['endless', ['UNAVAILABLE', 'signer-down', /said a line without an end$/]],
    ['other-kind', ['UNAVAILABLE', 'signer-down', /answered a public key where a signature was asked for$/]],
    ['own-code', ['UNAVAILABLE', 'signer-down', /said something that is not the protocol$/]],
    ['wrong', ['BAD_SIGNATURE', 'signer-wrong', /^external:wrong answered a signature that is not its key's$/]],
    ['missing', ['NOT_FOUND', 'signer-key-missing', /refused: no key of that name$/]],
  ];
  for (const [fault, expected] of faults) {
    it(`KEY-039 one that ${fault} is a typed error, and the next question is answered`, async () => {
      const signers = open();
      const { signer } = await signers.find(`external:${fault}`);
      await assert.rejects(signer.sign(input), refusal(...expected));
      await works(await signers.find('external:good'));
    });
  }

  it('KEY-039 one that never answers is given up at its deadline and started anew for the next question', async () => {
    const signers = open();
    const good = await signers.find('external:good');
    const { signer } = await signers.find('external:never-answers');
    const hasty = open({ BETTER_COMPUTE_SIGNER_TIMEOUT_MS: '50' });
    await assert.rejects(
      hasty.signerOf('external:never-answers', signer.spki).sign(input),
      refusal('UNAVAILABLE', 'signer-deadline', /^external:never-answers did not answer within 50 ms$/),
    );
    await works(good);
  });

  it('KEY-039 one refused login is not repeated: a token locks after a few', async () => {
    const signers = open();
    const { signer } = await signers.find('external:denied');
    const denied = refusal('PERMISSION_DENIED', 'signer-denied', /refused: wrong PIN error: forged line$/);
    await assert.rejects(signer.sign(input), denied);
    await assert.rejects(signers.find('external:good'), denied);
  });

  it('KEY-039 an answer to a question nobody asked is nobody’s', async () => {
    await works(await open().find('external:other-id'));
  });

  it('KEY-039 gets no secret of ours: none of our names is in its environment', async () => {
    const signers = open({
      BETTER_COMPUTE_SECRET: 'x'.repeat(40),
      BETTER_COMPUTE_DATABASE_URL: 'postgres://u:p@h/d',
      TEMPORAL_API_KEY: 'a key of Temporal',
      PGPASSWORD: 'a password',
      VENDOR_CONFIG: '/etc/vendor',
    });
    const { signer } = await signers.find('external:environment');
    await assert.rejects(signer.sign(input), refusal('UNSUPPORTED', 'signer-unsupported', /refused: VENDOR_CONFIG$/));
  });

  it('KEY-039 a program that is not there is a typed error', async () => {
    const signers = open({ BETTER_COMPUTE_SIGNER_COMMAND: '/nowhere/signer' });
    await assert.rejects(
      signers.find('external:a'),
      refusal('UNAVAILABLE', 'signer-down', /^the signer \/nowhere\/signer does not start \(ENOENT\)$/),
    );
  });

  it('KEY-039 without a program its keys say which name is missing', async () => {
    const signers = openExternalSigners(readSignerEnvironment({}), {});
    await assert.rejects(
      signers.find('external:a'),
      refusal('MISSING_ENV', 'signer-not-configured', /BETTER_COMPUTE_SIGNER_COMMAND is not set/),
    );
    await assert.rejects(
      signers.find('pkcs11:token=a;object=b'),
      refusal('MISSING_ENV', 'signer-not-configured', /BETTER_COMPUTE_PKCS11_MODULE is not set/),
    );
  });

  const badNames: readonly [string, string, RegExp][] = [
    ['BETTER_COMPUTE_SIGNER_COMMAND', 'signer', /must be the whole path of a program/],
    ['BETTER_COMPUTE_PKCS11_MODULE', 'libsofthsm2.so', /must be the whole path of a PKCS #11 library/],
    ['BETTER_COMPUTE_PKCS11_PIN_FILE', '1234', /must be the whole path of a file/],
    ['BETTER_COMPUTE_SIGNER_TIMEOUT_MS', '0', /must be 1 to 600000 milliseconds/],
    ['BETTER_COMPUTE_SIGNER_TIMEOUT_MS', '700000', /must be 1 to 600000 milliseconds/],
  ];
  for (const [name, value, message] of badNames) {
    it(`KEY-039 ${name}=${value} is refused`, () =>
      assert.throws(() => readSignerEnvironment({ [name]: value }), refusal('INVALID_CONFIG', 'environment', message)));
  }
});
