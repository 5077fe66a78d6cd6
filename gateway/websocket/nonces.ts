/** Nonces of handshakes that were taken, for as long as their proof could be taken again. One a process, bounded. */
import { handshakeSkewMs } from '../../pki/handshake/index.ts';

export interface NonceGuard {
  /** @returns false for one that was used before, and when there is no room to remember another */
  take(nonce: Uint8Array, now: number): boolean;
}

/** A proof is good from one skew before its time to one after it. */
const rememberedMs = 2 * handshakeSkewMs;
const mostNonces = 100_000;

export function createNonceGuard(): NonceGuard {
  /** In the order of use, so the oldest are first. */
  const used = new Map<string, number>();
  return {
    take(nonce, now) {
      for (const [oldest, at] of used) {
        if (now - at <= rememberedMs) break;
        used.delete(oldest);
      }
      const name = Buffer.from(nonce).toString('base64');
      if (used.has(name) || used.size >= mostNonces) return false;
      used.set(name, now);
      return true;
    },
  };
}
