import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { envNames, isSecretEnv } from '../../runtime/env-names.ts';
import { projectRoot, sourcesOf } from '../harness/imports.ts';

const folders = [
  'domain',
  'pki',
  'drizzle',
  'services',
  'activities',
  'workflows',
  'workers',
  'gateway',
  'api',
  'daemon',
  'cli',
  'runtime',
  'scripts',
];

describe('runtime/env-names', () => {
  it('lists every name that a source mentions, so that parseEnv refuses none of them', () => {
    const mentioned = folders
      .flatMap(sourcesOf)
      .flatMap((file) => readFileSync(join(projectRoot, file), 'utf8').match(/\bBETTER_COMPUTE_[A-Z_]*[A-Z]\b(?!_)/g) ?? []);
    const unlisted = [...new Set(mentioned)].filter((name) => !Object.hasOwn(envNames, name)).sort();
    assert.deepEqual(unlisted, []);
  });

  it('marks as secret whatever opens something', () => {
    const secret = Object.keys(envNames).filter(isSecretEnv);
    assert.deepEqual(secret, [
      'BETTER_COMPUTE_SECRET',
      'BETTER_COMPUTE_CODEC_KEY',
      'BETTER_COMPUTE_DATABASE_URL',
      'BETTER_COMPUTE_OPERATOR_TOKEN',
      'BETTER_COMPUTE_APPROVER_PASSPHRASE',
    ]);
  });
});
