/**
 * The word that a client must fetch by PUT before it may ask for anything. It proves that whoever asks can choose the method and the headers
 * of a request and read its answer: a server inside the instance that is talked into fetching an address for a stranger can not.
 *
 * Nothing is kept of it: it holds its end, under a key of this process, and it counts for the instance and the address that it was
 * given to. When bcd starts anew, clients get 401 and fetch another.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { hour, second } from '../../domain/time.ts';

export const longestSessionSeconds = (6 * hour) / second;

export interface Caller {
  readonly instanceId: string;
  readonly address: string;
}

export interface SessionTokens {
  issue(caller: Caller, ttlSeconds: number): string;
  isValid(token: string, caller: Caller): boolean;
}

const endBytes = 6;
const macBytes = 32;
const tokenPattern = /^[A-Za-z0-9_-]{51}$/;

/** @param key 32 random bytes; @param steadyMs a clock that nobody sets */
export function createSessionTokens({ key, steadyMs }: { readonly key: Uint8Array; readonly steadyMs: () => number }): SessionTokens {
  const macOf = (end: Uint8Array, { instanceId, address }: Caller): Buffer =>
    createHmac('sha256', key).update(end).update(`${instanceId}\0${address}`, 'utf8').digest();
  return {
    issue(caller, ttlSeconds) {
      const end = Buffer.alloc(endBytes);
      end.writeUIntBE(Math.floor(steadyMs() + ttlSeconds * second), 0, endBytes);
      return Buffer.concat([end, macOf(end, caller)]).toString('base64url');
    },
    isValid(token, caller) {
      if (!tokenPattern.test(token)) return false;
      const bytes = Buffer.from(token, 'base64url');
      if (bytes.length !== endBytes + macBytes) return false;
      const end = bytes.subarray(0, endBytes);
      return timingSafeEqual(bytes.subarray(endBytes), macOf(end, caller)) && end.readUIntBE(0, endBytes) > steadyMs();
    },
  };
}
