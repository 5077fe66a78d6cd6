/**
 * What a deployment on one machine needs before its processes start: the secret that seals the key bundle, the bundle, and
 * the operator's token. Made once, kept in the state folder with mode 0600, never printed.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { ControlError } from '../../domain/errors.ts';
import { createBundle, encodeBundle, openBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { createBundleFileStore, createWhole } from '../../runtime/bundle-file-store.ts';
import type { StackHome } from './home.ts';

export interface Materials {
  readonly secret: string;
  readonly operatorToken: string;
  readonly bundle: PkiBundle;
  readonly made: readonly string[];
}

export interface MaterialOptions {
  readonly home: StackHome;
  readonly env: NodeJS.ProcessEnv;
  readonly trustDomain: string;
  readonly now: number;
}

/**
 * @throws INVALID_CONFIG or INVALID_STATE when a bundle is there without its secret, or the other way round in a way that would
 *   lose keys
 */
export async function prepareMaterials({ home, env, trustDomain, now }: MaterialOptions): Promise<Materials> {
  const made: string[] = [];
  const secret = await secretOf({ home, env, made });
  if (!existsSync(home.bundle)) {
    await createBundleFileStore(home.bundle).create(encodeBundle(await createBundle({ trustDomain, now }), { secret }));
    made.push('key bundle');
  }
  const bundle = openBundle((await createBundleFileStore(home.bundle).read()).text, { secret });
  const operatorToken = await keptRandom({ path: home.operatorToken, what: 'operator token', made });
  return { secret, operatorToken, bundle, made };
}

async function secretOf({ home, env, made }: { home: StackHome; env: NodeJS.ProcessEnv; made: string[] }): Promise<string> {
  const given = env['BETTER_COMPUTE_SECRET'];
  if (given !== undefined && given !== '') return given;
  if (!existsSync(home.secret) && existsSync(home.bundle)) {
    throw new ControlError(
      'MISSING_ENV',
      `${home.bundle} exists, but neither BETTER_COMPUTE_SECRET nor ${home.secret} holds the secret that opens it`,
      {
        details: { reason: 'secret-missing' },
      },
    );
  }
  return keptRandom({ path: home.secret, what: 'development secret', made });
}

async function keptRandom({ path, what, made }: { path: string; what: string; made: string[] }): Promise<string> {
  if (!existsSync(path)) {
    await createWhole(path, `${randomBytes(36).toString('base64url')}\n`);
    made.push(what);
  }
  const text = readFileSync(path, 'utf8').trim();
  if (text.length >= 32) return text;
  throw new ControlError('INVALID_CONFIG', `${path} does not hold the ${what} that start wrote there`, {
    details: { reason: 'state-folder' },
  });
}
