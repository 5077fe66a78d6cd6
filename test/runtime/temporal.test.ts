import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { temporalConnectionOptions } from '../../runtime/temporal.ts';

describe('runtime/temporal', () => {
  const folder = mkdtempSync(join(tmpdir(), 'bc-profile-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const profile = (text: string): NodeJS.ProcessEnv => {
    const file = join(folder, 'temporal.toml');
    writeFileSync(file, text);
    return { TEMPORAL_CONFIG_FILE: file };
  };

  it('is the local server and the default namespace when nothing is set', () => {
    const target = temporalConnectionOptions({ TEMPORAL_CONFIG_FILE: join(folder, 'absent.toml') });
    assert.equal(target.connectionOptions.address, '127.0.0.1:7233');
    assert.equal(target.namespace, 'default');
  });

  it('reads a profile, and the environment above it', () => {
    const env = profile('[profile.default]\naddress = "temporal.example:7233"\nnamespace = "fleet"\n');
    assert.equal(temporalConnectionOptions(env).connectionOptions.address, 'temporal.example:7233');
    assert.equal(temporalConnectionOptions(env).namespace, 'fleet');
    assert.equal(temporalConnectionOptions({ ...env, TEMPORAL_ADDRESS: '127.0.0.1:1' }).connectionOptions.address, '127.0.0.1:1');
  });

  it('says in one line that a profile cannot be read', () => {
    assert.throws(() => temporalConnectionOptions(profile('not toml')), {
      code: 'INVALID_CONFIG',
      message: 'the Temporal connection profile cannot be read (TEMPORAL_* variables or temporal.toml)',
    });
  });
});
