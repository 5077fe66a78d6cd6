/** Every set by its name: which code of production judges its cases. */
import { ControlError } from '../../../domain/errors.ts';
import type { Case } from '../case.ts';
import { judgeAesGcm, judgeAesKw, judgeHkdf, judgeJwe, judgeJwk, judgeJws } from './jose.ts';
import { judgeEcdh, judgeEs256, judgeSpki } from './keys.ts';
import { judgeMerkle, judgeTrustWalk } from './quorum.ts';
import { judgeEd25519, judgeSshCert, judgeSshKrl } from './ssh.ts';
import { judgeWebSocket } from './websocket.ts';
import { judgeCsr, judgeSpiffeId, judgeX509 } from './x509.ts';

/** Answers with the value of an accepted case (undefined: it has none), or throws why it is refused. */
export type Judge = (read: Case, now: number) => unknown;

export const sets: Readonly<Record<string, Judge>> = Object.freeze({
  es256: judgeEs256,
  ed25519: judgeEd25519,
  ecdh: judgeEcdh,
  spki: judgeSpki,
  'aes-gcm': judgeAesGcm,
  hkdf: judgeHkdf,
  'aes-kw': judgeAesKw,
  jws: judgeJws,
  jwe: judgeJwe,
  jwk: judgeJwk,
  x509: judgeX509,
  csr: judgeCsr,
  'spiffe-id': judgeSpiffeId,
  'ssh-cert': judgeSshCert,
  'ssh-krl': judgeSshKrl,
  merkle: judgeMerkle,
  'trust-walk': judgeTrustWalk,
  'ws-frames': judgeWebSocket,
});

/** INVALID_INPUT naming every set there is. */
export const getSet = (name: string): Judge => {
  const entry = Object.hasOwn(sets, name) ? sets[name] : undefined;
  if (entry !== undefined) return entry;
  throw new ControlError('INVALID_INPUT', name === '' ? 'no set is named' : `there is no set ${JSON.stringify(name.slice(0, 64))}`, {
    details: { reason: 'unknown-set', hint: `name one of ${Object.keys(sets).join(', ')}` },
  });
};
