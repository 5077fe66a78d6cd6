/** Where an api takes secrets from, by its environment: what is wrong is named, and nothing of ours is ever lent. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type SecretEnvironment, secretSettingsOf } from '../../api/secret-settings.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { refused } from '../services/support.ts';

describe('the settings of secrets', () => {
  after(removeScratchFolders);
  const settings = (changes: Partial<SecretEnvironment> = {}) =>
    secretSettingsOf({ BETTER_COMPUTE_SECRET_ENV: '', ...changes }, { A: 'a' });
  const tokenFile = (text: string): string => {
    const path = join(scratchFolder(), 'token');
    writeFileSync(path, text);
    return path;
  };

  it('SEC-028 takes nothing from anywhere unless it is told to', () => {
    assert.deepEqual(settings(), { secret: null, vault: null, environment: { allowed: [], values: { A: 'a' } } });
  });

  it('SEC-028 lends variables by name, and never one of its own', () => {
    assert.deepEqual(settings({ BETTER_COMPUTE_SECRET_ENV: 'SITE_TOKEN, OTHER,' }).environment.allowed, ['SITE_TOKEN', 'OTHER']);
    for (const name of ['BETTER_COMPUTE_SECRET', 'lower', 'A-B'])
      assert.throws(
        () => settings({ BETTER_COMPUTE_SECRET_ENV: `OK,${name}` }),
        refused('INVALID_CONFIG', new RegExp(`BETTER_COMPUTE_SECRET_ENV: names ${name}`), 'environment'),
      );
  });

  it('SEC-028 speaks to Vault by https, or on this machine, with a token of a file', () => {
    const file = tokenFile('s.token\n');
    const vault = (url: string, path = file) => settings({ BETTER_COMPUTE_VAULT_URL: url, BETTER_COMPUTE_VAULT_TOKEN_FILE: path }).vault;
    assert.deepEqual(vault('https://vault.example'), { url: 'https://vault.example', token: 's.token' });
    assert.equal(vault('http://127.0.0.1:8200')?.url, 'http://127.0.0.1:8200');
    for (const url of ['http://vault.example', 'ftp://127.0.0.1', 'vault'])
      assert.throws(() => vault(url), refused('INVALID_CONFIG', /must be an https URL/, 'environment'), url);
    assert.throws(() => vault('https://v', tokenFile('')), refused('INVALID_CONFIG', /holds no token/, 'environment'));
    assert.throws(() => vault('https://v', join(scratchFolder(), 'none')), refused('INVALID_CONFIG', /cannot be read/, 'environment'));
    assert.throws(() => settings({ BETTER_COMPUTE_VAULT_URL: 'https://v' }), refused('MISSING_ENV', /VAULT_TOKEN_FILE must be set/));
    assert.throws(() => settings({ BETTER_COMPUTE_VAULT_TOKEN_FILE: file }), refused('MISSING_ENV', /VAULT_URL must be set/));
  });
});
