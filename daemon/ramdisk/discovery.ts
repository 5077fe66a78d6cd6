/**
 * The discovery join: the site agent at whose boot server this machine booted vouches for the key that it will use (JOIN-018).
 *
 * What the ramdisk believes of the site agent: nothing. It carries the assertion to the control plane, which checks it; whom the ramdisk
 * believes is in the pins on its kernel's command line.
 */
import { createHash } from 'node:crypto';
import { type Code, ControlError, errorTable } from '../../domain/errors.ts';
import type { BootCmdline } from '../../domain/metal/cmdline.ts';
import { second } from '../../domain/time.ts';
import { type JoinBundle, parsePinsFile } from '../../pki/enroll/index.ts';
import { assertPath, encodeAssertRequest } from '../site/boot/assert-request.ts';
import type { MachineFacts } from './disks/disk-host.ts';

const askWithinMs = 30 * second;
const answerMaxBytes = 64 * 1024;

/** Whom this boot believes. The token names the boot, so that a join cut short is taken up with the same request. */
export function bundleOf({ pins, gatewayUrl, entryId, token }: BootCmdline): JoinBundle {
  const believed = parsePinsFile(Buffer.from(pins, 'base64url').toString('utf8'));
  return { ...believed, gateway: gatewayUrl, token: `discovery:${entryId}:${token}` };
}

/**
 * Asks the site agent to vouch for a key.
 *
 * @throws the site agent's refusal with its code and words; UNAVAILABLE `site-agent` when it cannot be reached or answers something else
 */
export function assertionBy(line: BootCmdline, machine: MachineFacts): (csr: Uint8Array) => Promise<Uint8Array> {
  return async (csr) => {
    const body = encodeAssertRequest({
      token: Buffer.from(line.token, 'base64url'),
      csrSha256: createHash('sha256').update(csr).digest('hex'),
      macAddress: line.macAddress,
      systemUuid: machine.systemUuid,
      systemSerial: machine.systemSerial,
    });
    const answer = await post(`${line.site}${assertPath}`, body);
    const bytes = new Uint8Array(await answer.arrayBuffer());
    if (bytes.length > answerMaxBytes) throw unfit(`${bytes.length} bytes`);
    if (answer.status === 200) return bytes;
    throw refusalOf(answer.status, Buffer.from(bytes).toString('utf8'));
  };
}

async function post(url: string, body: string): Promise<Response> {
  try {
    const headers = { 'content-type': 'application/json' };
    return await fetch(url, { method: 'POST', body, headers, redirect: 'error', signal: AbortSignal.timeout(askWithinMs) });
  } catch (cause) {
    const why =
      cause instanceof Error ? `${cause.message}${cause.cause instanceof Error ? `: ${cause.cause.message}` : ''}` : String(cause);
    throw new ControlError('UNAVAILABLE', `the site agent at ${url} does not answer: ${why}`, { cause, details: { reason: 'site-agent' } });
  }
}

function refusalOf(status: number, text: string): ControlError {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    return unfit(`status ${status}`);
  }
  const { code, message, details } = said as { code?: unknown; message?: unknown; details?: unknown };
  if (typeof code !== 'string' || typeof message !== 'string' || !Object.hasOwn(errorTable, code)) return unfit(`status ${status}`);
  const facts = typeof details === 'object' && details !== null ? (details as Record<string, unknown>) : {};
  return new ControlError(code as Code, `the site agent does not vouch for this machine: ${message}`, { details: facts });
}

const unfit = (what: string): ControlError =>
  new ControlError('UNAVAILABLE', `the site agent answered ${what}`, { details: { reason: 'site-agent' } });
