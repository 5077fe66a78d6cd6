/** OpenSSL as a judge, through its command. (What it prints of ours: test/pki/x509/oracles-openssl.test.ts.) */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { encodePem, parsePem, parsePemCertificates } from '../../pki/x509/index.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { type Folder, inTurn, lastLine, newFolder, pemOf, runTool } from './command.ts';
import type { Judge, JudgedChain, MadeChain, Verdict } from './judges.ts';
import type { CertificateShape, ChainShape } from './shapes.ts';
import { describeJudge } from './verification.ts';

const purposes = Object.freeze({ client: 'sslclient', server: 'sslserver' });
const keyOptions = Object.freeze({
  p256: ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256'],
  p384: ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-384'],
  rsa: ['-newkey', 'rsa:2048'],
});
const ekus = Object.freeze({ client: 'clientAuth', server: 'serverAuth' });
const akis = Object.freeze({ key: 'keyid', issuer: 'keyid,issuer:always', none: 'none' });

const list = (name: string, values: readonly string[]): string[] => (values.length === 0 ? [] : [`${name} = ${values.join(',')}`]);

/** The lines of a section of extensions (x509v3_config). */
const extensionsOf = (shape: CertificateShape): string =>
  [
    ...(shape.isCa ? [`basicConstraints = critical,CA:TRUE${shape.pathLen === null ? '' : `,pathlen:${shape.pathLen}`}`] : []),
    ...list('keyUsage', ['critical', ...shape.keyUsage]),
    ...list(
      'extendedKeyUsage',
      shape.ekus.map((use) => ekus[use]),
    ),
    ...list('subjectAltName', [
      ...shape.uris.map((text) => `URI:${text}`),
      ...shape.dns.map((text) => `DNS:${text}`),
      ...shape.ips.map((text) => `IP:${text}`),
      ...shape.emails.map((text) => `email:${text}`),
    ]),
    ...list(
      'nameConstraints',
      shape.onlyDns.map((text) => `permitted;DNS:${text}`),
    ),
    ...(shape.hasUnknown ? ['1.3.6.1.4.1.99999.1 = critical,DER:0500'] : []),
    'subjectKeyIdentifier = hash',
    `authorityKeyIdentifier = ${akis[shape.aki]}`,
    '',
  ].join('\n');

class Openssl implements Judge {
  readonly #folder: Folder = newFolder();

  async verify(chains: readonly JudgedChain[]): Promise<Verdict[]> {
    return inTurn(chains, (chain) => this.#verify(chain));
  }

  async #verify({ leaf, intermediates, anchors, uses, serverName }: JudgedChain): Promise<Verdict> {
    const files = ['-CAfile', this.#folder.file(pemOf(anchors)), '-untrusted', this.#folder.file(pemOf([leaf, ...intermediates]))];
    const name = serverName === undefined ? [] : ['-verify_hostname', serverName];
    for (const purpose of uses.length === 0 ? (['any'] as const) : uses.map((use) => purposes[use])) {
      const args = ['verify', '-x509_strict', '-check_ss_sig', '-purpose', purpose, ...name, ...files, this.#folder.file(pemOf([leaf]))];
      const { code, out } = await runTool('openssl', args);
      if (code !== 0) return lastLine(out);
    }
    return null;
  }

  async verifyRequests(requests: readonly Uint8Array[]): Promise<Verdict[]> {
    return inTurn(requests, async (der) => {
      const args = ['req', '-noout', '-verify', '-in', this.#folder.file(encodePem('CERTIFICATE REQUEST', der))];
      const { code, out } = await runTool('openssl', args);
      return code === 0 && /verify OK/.test(out) ? null : lastLine(out);
    });
  }

  /** Up to release 3.3 the command takes whole days from now only. */
  makes(chain: ChainShape): boolean {
    const now = Date.now() / 1_000;
    return chain.every(({ notBefore, notAfter }) => notBefore < now && notAfter > now);
  }

  make(chains: readonly ChainShape[]): Promise<MadeChain[]> {
    return inTurn(chains, (chain) => this.#make(chain));
  }

  async #make(shapes: ChainShape): Promise<MadeChain> {
    let issuer: { readonly key: string; readonly certificate: string } | null = null;
    let request = '';
    const chain: Uint8Array[] = [];
    for (const shape of shapes) {
      const [key, certificate] = [this.#folder.path(), this.#folder.path()];
      request = this.#folder.path();
      const subject = shape.subject.map(([kind, value]) => `/${kind}=${value}`).join('');
      await assertRan(['req', '-new', '-noenc', '-sha256', ...keyOptions[shape.key], '-keyout', key, '-subj', subject, '-out', request]);
      const signer: string[] = issuer === null ? ['-signkey', key] : ['-CA', issuer.certificate, '-CAkey', issuer.key];
      const serial = `0x0b${randomBytes(12).toString('hex')}`;
      const files = ['-in', request, '-extfile', this.#folder.file(extensionsOf(shape)), '-out', certificate];
      await assertRan(['x509', '-req', ...files, '-days', '1', `-${shape.hash}`, '-set_serial', serial, ...signer]);
      chain.push(...parsePemCertificates(readFileSync(certificate, 'utf8')));
      issuer = { key, certificate };
    }
    return { chain, request: parsePem('CERTIFICATE REQUEST', readFileSync(request, 'utf8'))[0] as Uint8Array };
  }
}

const assertRan = async (args: readonly string[]): Promise<void> => {
  const { code, out } = await runTool('openssl', args);
  assert.equal(code, 0, `openssl ${args.join(' ')}: ${out}`);
};

describeJudge('openssl verify', async () => {
  const { code } = await runTool('openssl', ['version']);
  return code === 0 ? { judge: new Openssl(), why: '' } : { judge: null, why: 'openssl is not installed' };
});

after(removeScratchFolders);
