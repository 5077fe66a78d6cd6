import { generateKeyPairSync } from 'node:crypto';
import { isIP } from 'node:net';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { day, showInstant } from '../../../domain/time.ts';
import { createAuthorities } from '../../../pki/authority/index.ts';
import { openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { type Certificate, encodePem, spkiOf, spkiPin } from '../../../pki/x509/index.ts';
import { replaceWhole } from '../../../runtime/bundle-file-store.ts';
import { replaceSet } from '../../../runtime/replace-set.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { openOptionsOf, pkiOption, withSource } from './source.ts';

/** Serving certificates: two weeks unless asked, a quarter of a year at most (A-PKI-11). */
const defaultDays = 14;
const maxDays = 90;

export interface PkiIssueGatewayOptions extends CommonOptions {
  readonly san: readonly string[];
  readonly out: string | null;
  readonly name: string;
  readonly days: number;
  readonly pki: string | null;
}

export function newPkiIssueGateway(run: (options: PkiIssueGatewayOptions) => Promise<void>): Command {
  const command = new Command('issue-gateway')
    .description('Issue a serving certificate with a new key: NAME.key, NAME.crt and node-ca.pem for a gateway')
    .addOption(new Option('--san <name...>', 'DNS name or IP address daemons dial; repeat it for more').makeOptionMandatory())
    .option('--out <folder>', 'where the files go (default: BETTER_COMPUTE_TLS, else tls in the state folder)')
    .addOption(new Option('--name <name>', 'file name without ending').default('gateway').argParser(parseName))
    .addOption(new Option('--days <n>', `lifetime, 1 to ${maxDays}`).default(defaultDays).argParser(parseDays))
    .addOption(pkiOption())
    .action((flags: { san: string[]; out?: string; name: string; days: number; pki?: string }) =>
      run({ ...commonOptions(command), ...flags, out: flags.out ?? null, pki: flags.pki ?? null }),
    );
  return withExamples(command, [
    'better-compute pki issue-gateway --san gw.eu-1.compute.example.com --out /etc/better-compute/tls --days 14',
  ]);
}

/** A name that stays inside the folder. */
function parseName(value: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(value)) return value;
  throw new InvalidArgumentError('It must be a file name: letters, digits, ".", "-" and "_".');
}

function parseDays(value: string): number {
  const days = /^\d{1,3}$/.test(value) ? Number(value) : 0;
  if (days >= 1 && days <= maxDays) return days;
  throw new InvalidArgumentError(`It must be a whole number from 1 to ${maxDays}.`);
}

/** CLI-021 to CLI-026, TLS-021. */
export async function pkiIssueGatewayRun(options: PkiIssueGatewayOptions, ports: Ports): Promise<void> {
  const { text } = await withSource(options.pki, ports, (source) => source.read());
  const bundle = openBundle(text, openOptionsOf(ports));
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { certificate, chain } = await createAuthorities(bundle).issueGateway({
    spki: spkiOf(publicKey),
    now: ports.io.now(),
    lifetimeMs: options.days * day,
    ...namesOf(options.san),
  });
  const folder = options.out === null ? ports.settings.tlsFolder : resolve(options.out);
  const files = { key: join(folder, `${options.name}.key`), crt: join(folder, `${options.name}.crt`), nodeCa: join(folder, 'node-ca.pem') };
  await replaceWhole(files.nodeCa, pemOf(bundle.nodeCa.certificates.map(({ der }) => der)));
  await replaceSet(join(folder, options.name), [
    { path: files.key, text: encodePem('PRIVATE KEY', privateKey.export({ type: 'pkcs8', format: 'der' })) },
    { path: files.crt, text: pemOf(chain) },
  ]);
  report({ certificate, bundle, files }, ports, options.json);
}

function namesOf(names: readonly string[]): { dns: string[]; ips: string[] } {
  const ips = names.filter((name) => isIP(name) !== 0);
  const dns = names.filter((name) => isIP(name) === 0);
  const bad = dns.find((name) => !/^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/.test(name));
  if (bad === undefined) return { dns, ips };
  throw new ControlError('INVALID_INPUT', `--san ${bad} is neither a lower-case DNS name nor an IP address`, {
    details: { reason: 'san', san: bad },
  });
}

const pemOf = (chain: readonly Uint8Array[]): string => chain.map((der) => encodePem('CERTIFICATE', der)).join('');

interface Issued {
  readonly certificate: Certificate;
  readonly bundle: PkiBundle;
  readonly files: { readonly key: string; readonly crt: string; readonly nodeCa: string };
}

function report({ certificate, bundle, files }: Issued, ports: Ports, json: boolean): void {
  const issued = {
    ...files,
    names: [...certificate.dnsSans, ...certificate.ipSans],
    serial: certificate.serial,
    notAfter: showInstant(certificate.notAfter),
    servingCaPin: spkiPin(bundle.servingCa.spki),
  };
  if (json) return writeJson(ports.io, issued);
  ports.io.out(
    Object.entries(issued)
      .map(([name, value]) => `${name}: ${Array.isArray(value) ? value.join(', ') : value}`)
      .join('\n'),
  );
}
