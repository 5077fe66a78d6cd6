/** GnuTLS as a judge, through its command certtool. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { encodePem, parsePem, parsePemCertificates } from '../../pki/x509/index.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { type Folder, inTurn, lastLine, newFolder, pemOf, runTool } from './command.ts';
import type { Judge, JudgedChain, MadeChain, Verdict } from './judges.ts';
import type { CertificateShape, ChainShape } from './shapes.ts';
import { describeJudge } from './verification.ts';

const useOids = Object.freeze({ client: '1.3.6.1.5.5.7.3.2', server: '1.3.6.1.5.5.7.3.1' });
const keyTypes = Object.freeze({
  p256: ['--key-type=ecdsa', '--curve=secp256r1'],
  p384: ['--key-type=ecdsa', '--curve=secp384r1'],
  rsa: ['--key-type=rsa', '--bits=2048'],
});

const fields = Object.freeze({ O: 'organization', OU: 'unit', CN: 'cn' });
const usages = Object.freeze({ digitalSignature: 'signing_key', keyCertSign: 'cert_signing_key', cRLSign: 'crl_signing_key' });
const ekus = Object.freeze({ client: 'tls_www_client', server: 'tls_www_server' });
const time = (seconds: number): string => new Date(seconds * 1_000).toISOString().slice(0, 19).replace('T', ' ');

/** The lines of a template (certtool, "Certtool's template file format"). */
const templateOf = (shape: CertificateShape): string =>
  [
    ...shape.subject.map(([kind, value]) => `${fields[kind]} = "${value}"`),
    `serial = 0x0b${randomBytes(12).toString('hex')}`,
    `activation_date = "${time(shape.notBefore)}"`,
    `expiration_date = "${time(shape.notAfter)}"`,
    ...(shape.isCa ? ['ca'] : []),
    ...(shape.pathLen === null ? [] : [`path_len = ${shape.pathLen}`]),
    ...shape.keyUsage.map((usage) => usages[usage]),
    ...shape.ekus.map((use) => ekus[use]),
    ...shape.uris.map((text) => `uri = "${text}"`),
    ...shape.dns.map((text) => `dns_name = "${text}"`),
    ...shape.ips.map((text) => `ip_address = "${text}"`),
    ...shape.emails.map((text) => `email = "${text}"`),
    ...shape.onlyDns.map((text) => `nc_permit_dns = "${text}"`),
    ...(shape.hasUnknown ? ['add_critical_extension = "1.3.6.1.4.1.99999.1 0x0500"'] : []),
    '',
  ].join('\n');

class Certtool implements Judge {
  readonly #folder: Folder = newFolder();

  async verify(chains: readonly JudgedChain[]): Promise<Verdict[]> {
    return inTurn(chains, (chain) => this.#verify(chain));
  }

  async #verify({ leaf, intermediates, anchors, uses, serverName }: JudgedChain): Promise<Verdict> {
    const chain = this.#folder.file(pemOf([leaf, ...intermediates]));
    const files = ['--verify', `--infile=${chain}`, `--load-ca-certificate=${this.#folder.file(pemOf(anchors))}`];
    const name = serverName === undefined ? [] : [`--verify-hostname=${serverName}`];
    for (const purpose of uses.length === 0 ? [[]] : uses.map((use) => [`--verify-purpose=${useOids[use]}`])) {
      const { code, out } = await runTool('certtool', [...files, ...purpose, ...name]);
      if (code !== 0) return lastLine(out);
      assert.match(out, /Verified\. The certificate is trusted\./);
    }
    return null;
  }

  async verifyRequests(requests: readonly Uint8Array[]): Promise<Verdict[]> {
    return inTurn(requests, async (der) => {
      const file = this.#folder.file(encodePem('CERTIFICATE REQUEST', der));
      const { code, out } = await runTool('certtool', ['--crq-info', `--infile=${file}`]);
      return code === 0 && /Self signature: verified/.test(out) ? null : lastLine(out);
    });
  }

  makes(chain: ChainShape): boolean {
    return chain.every(({ aki }) => aki === 'key');
  }

  make(chains: readonly ChainShape[]): Promise<MadeChain[]> {
    return inTurn(chains, (chain) => this.#make(chain));
  }

  async #make(shapes: ChainShape): Promise<MadeChain> {
    let issuer: { readonly key: string; readonly certificate: string } | null = null;
    const chain: Uint8Array[] = [];
    for (const shape of shapes) {
      const [key, certificate] = [this.#folder.path(), this.#folder.path()];
      const template = `--template=${this.#folder.file(templateOf(shape))}`;
      await assertRan(['--generate-privkey', '--no-text', ...keyTypes[shape.key], `--outfile=${key}`]);
      const signer: string[] =
        issuer === null
          ? ['--generate-self-signed']
          : ['--generate-certificate', `--load-ca-certificate=${issuer.certificate}`, `--load-ca-privkey=${issuer.key}`];
      const hash = `--hash=${shape.hash.toUpperCase()}`;
      await assertRan([...signer, '--no-text', hash, template, `--load-privkey=${key}`, `--outfile=${certificate}`]);
      chain.push(...parsePemCertificates(readFileSync(certificate, 'utf8')));
      issuer = { key, certificate };
    }
    return { chain, request: await this.#request(issuer?.key ?? '', templateOf(shapes.at(-1) as CertificateShape)) };
  }

  async #request(key: string, template: string): Promise<Uint8Array> {
    const file = this.#folder.path();
    await assertRan([
      '--generate-request',
      '--no-text',
      '--hash=SHA256',
      `--template=${this.#folder.file(template)}`,
      `--load-privkey=${key}`,
      `--outfile=${file}`,
    ]);
    // GnuTLS labels it NEW CERTIFICATE REQUEST.
    const text = readFileSync(file, 'utf8').replaceAll('NEW CERTIFICATE REQUEST', 'CERTIFICATE REQUEST');
    return parsePem('CERTIFICATE REQUEST', text)[0] as Uint8Array;
  }
}

const assertRan = async (args: readonly string[]): Promise<void> => {
  const { code, out } = await runTool('certtool', args);
  assert.equal(code, 0, `certtool ${args.join(' ')}: ${out}`);
};

describeJudge('GnuTLS certtool', async () => {
  const { code } = await runTool('certtool', ['--version']);
  return code === 0 ? { judge: new Certtool(), why: '' } : { judge: null, why: 'certtool (gnutls-bin) is not installed' };
});

after(removeScratchFolders);
