/**
 * ES256 tokens made and verified, against what that needs bare: one signature and two verifications, because a token is verified
 * before it leaves and again where it is shown.
 */
import { generateKeyPairSync, sign, verify } from 'node:crypto';
import { encodePublicJwk, parseJwks, signJws, verifyJws } from '../../pki/jose/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import type { Figure } from './main.ts';
import { atLeast, inTurns } from './turns.ts';

const goal = 0.5;

export async function figure(): Promise<Figure> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const signer = signerFromPrivateKey(privateKey);
  const keys = parseJwks({ keys: [encodePublicJwk(signer.spki, 'sig')] }, 'sig');
  const claims = {
    iss: 'https://api.example',
    aud: 'node:node-1',
    sub: 'ada',
    sid: 's',
    op: 'exec',
    iat: 1,
    exp: 61,
    jti: '0123456789abcdef012345',
  };
  const payload = Buffer.from(JSON.stringify(claims));
  const make = (): Promise<string> => signJws({ signer, typ: 'bc-exec+jwt', payload });
  const token = await make();
  const input = Buffer.from(token.slice(0, token.lastIndexOf('.')));
  const options = { key: privateKey, dsaEncoding: 'ieee-p1363' } as const;
  const signature = sign('sha256', input, options);
  const verifyOnce = (): boolean => verify('sha256', input, { key: publicKey, dsaEncoding: 'ieee-p1363' }, signature);
  const perRound = 300;
  const both = await inTurns({
    ours: async () => verifyJws(await make(), { keys, typ: 'bc-exec+jwt' }),
    bare: () => {
      sign('sha256', input, options);
      return verifyOnce() && verifyOnce();
    },
    perRound,
  });
  const shown = await inTurns({ ours: () => verifyJws(token, { keys, typ: 'bc-exec+jwt' }), bare: verifyOnce, perRound });
  return atLeast('jwt', goal, { ...both, detail: { verifiedAlone: shown } });
}
