/** One connection to where a relayed request goes, judged before a byte of it goes out: the address, and the key behind it. */
import { createHash, X509Certificate } from 'node:crypto';
import { lookup as systemLookup } from 'node:dns';
import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { ControlError } from '../../../domain/errors.ts';
import { type AllowRule, judgeAddress } from './allow.ts';

export interface DialOptions {
  readonly url: URL;
  readonly rule: AllowRule;
  /** Lower-case hex; empty: the trust of this machine. */
  readonly pinSha256: string;
  readonly signal: AbortSignal;
  readonly lookup?: typeof systemLookup;
}

/**
 * @throws PERMISSION_DENIED (`address-not-allowed`, `pin-mismatch`, `not-trusted`); UNAVAILABLE (`dial-failed`); what the signal was
 *   aborted with
 */
export async function dialTarget(options: DialOptions): Promise<Socket> {
  const { url, pinSha256, signal } = options;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const lookup = judgedLookup(options);
  // A literal address is looked up by nobody.
  if (isIP(host) !== 0) judgeAddress(host, options.rule);
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  if (url.protocol === 'http:') return established(connectTcp({ host, port, lookup }), { event: 'connect', url, signal });
  const socket = connectTls({
    host,
    port,
    lookup,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    minVersion: 'TLSv1.2',
    ALPNProtocols: ['http/1.1'],
    // With a pin ours is the verdict: management interfaces sign their own certificates.
    rejectUnauthorized: pinSha256 === '',
  });
  await established(socket, { event: 'secureConnect', url, signal });
  if (pinSha256 !== '') assertPin(socket, { url, pinSha256 });
  return socket;
}

/** The address that was judged is the one that is dialled: a second look-up could say another. */
function judgedLookup({ rule, lookup = systemLookup }: DialOptions): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, '', 0);
      try {
        for (const { address } of addresses) judgeAddress(address, rule);
      } catch (refusal) {
        return callback(refusal as Error, '', 0);
      }
      const [first] = addresses;
      if (first === undefined) return callback(new Error(`${hostname} has no address`), '', 0);
      return options.all === true ? callback(null, addresses) : callback(null, first.address, first.family);
    });
  };
}

function established<S extends Socket>(socket: S, { event, url, signal }: { event: string; url: URL; signal: AbortSignal }): Promise<S> {
  return new Promise((resolve, reject) => {
    const settle = (): void => {
      signal.removeEventListener('abort', onAbort);
      socket.off('error', onError);
      // Late errors of a socket that was given up are nobody's.
      socket.on('error', () => undefined);
    };
    const fail = (error: unknown): void => {
      settle();
      socket.destroy();
      reject(error);
    };
    const onAbort = (): void => fail(signal.reason);
    const onError = (error: Error): void => fail(error instanceof ControlError ? error : dialError(url, error));
    if (signal.aborted) return fail(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    socket.once('error', onError);
    socket.once(event, () => {
      settle();
      resolve(socket);
    });
  });
}

function dialError(url: URL, cause: Error & { code?: unknown }): ControlError {
  const { code } = cause;
  const isTrust = typeof code === 'string' && /^(?:ERR_TLS_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|CERT_)/.test(code);
  return isTrust
    ? new ControlError('PERMISSION_DENIED', `the certificate of ${url.host} is not one that this machine trusts: ${code}`, {
        cause,
        details: { reason: 'not-trusted', hint: 'name the SHA-256 of its key in the command (pin_sha256)' },
      })
    : new ControlError('UNAVAILABLE', `no connection to ${url.host}: ${typeof code === 'string' ? code : cause.message}`, {
        cause,
        details: { reason: 'dial-failed' },
      });
}

function assertPin(socket: TLSSocket, { url, pinSha256 }: { url: URL; pinSha256: string }): void {
  const raw = socket.getPeerX509Certificate()?.raw;
  const spki = raw === undefined ? new Uint8Array() : new X509Certificate(raw).publicKey.export({ type: 'spki', format: 'der' });
  const seen = createHash('sha256').update(spki).digest('hex');
  if (seen === pinSha256) return;
  socket.destroy();
  throw new ControlError('PERMISSION_DENIED', `the key of ${url.host} has SHA-256 ${seen}, and ${pinSha256} is the one that is meant`, {
    details: { reason: 'pin-mismatch', seen },
  });
}
