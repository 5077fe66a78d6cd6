/** This machine and its files, as doctor judges them. Pure. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { about } from '../../domain/rotation/gates.ts';
import { day, second, showInstant } from '../../domain/time.ts';
import { error, type Finding, messageOf, ok, warning } from './finding.ts';

const oldestNode = [20, 19] as const;

export function judgeNode(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const good = major > oldestNode[0] || (major === oldestNode[0] && minor >= oldestNode[1]);
  return good
    ? ok('node.version', `node ${version}`)
    : error('node.version', `node ${version} is older than 20.19`, 'install node 20.19 or newer');
}

/** Half of what a renewal tolerates is worth a word; all of it is an error (RENEW-006). */
const skew = Object.freeze({ warnMs: 30 * second, errorMs: 60 * second });

/** @param theirs the database's clock, read between two readings of ours */
export function judgeClock(ours: number, theirs: number): Finding {
  const off = Math.abs(ours - theirs);
  const fix = 'correct the clocks (chrony or systemd-timesyncd) on this host and the database host';
  const message = `this host and the database differ by ${about(off)}`;
  if (off >= skew.errorMs) return error('clock.skew', message, fix);
  return off >= skew.warnMs ? warning('clock.skew', message, fix) : ok('clock', message);
}

export interface GatewayFiles {
  readonly certificate: string | null;
  readonly key: string | null;
  readonly folder: string;
}

const renewBeforeMs = 3 * day;

export function judgeGatewayFiles({ certificate, key, folder }: GatewayFiles, now: number): Finding[] {
  if (certificate === null) return [];
  const fix = `better-compute pki issue-gateway --san <name> --out ${folder}`;
  let leaf: X509Certificate;
  try {
    leaf = new X509Certificate(certificate);
  } catch (cause) {
    return [error('tls.unreadable', `the gateway certificate in ${folder} cannot be read: ${messageOf(cause)}`, fix)];
  }
  const notAfter = Date.parse(leaf.validTo);
  const findings: Finding[] = [];
  if (!belongs(leaf, key)) findings.push(error('tls.mismatch', `the gateway key in ${folder} does not belong to its certificate`, fix));
  if (notAfter <= now) findings.push(error('tls.expired', `the gateway certificate expired at ${showInstant(notAfter)}`, fix));
  else if (notAfter - now <= renewBeforeMs)
    findings.push(warning('tls.expiring', `the gateway certificate expires in ${about(notAfter - now)}`, fix));
  return findings.length > 0 ? findings : [ok('tls', `the gateway certificate is valid until ${showInstant(notAfter)}`)];
}

function belongs(leaf: X509Certificate, key: string | null): boolean {
  try {
    return key !== null && leaf.checkPrivateKey(createPrivateKey(key));
  } catch {
    return false;
  }
}
