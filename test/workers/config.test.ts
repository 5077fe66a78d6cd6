/** What a worker is told is judged before it opens or reaches anything. */
import assert from 'node:assert/strict';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { readSigningConfig } from '../../workers/config.ts';

const env = { BETTER_COMPUTE_DATABASE_URL: 'postgres://127.0.0.1/x', BETTER_COMPUTE_PKI: '/nowhere/pki.json' };
const name = 'BETTER_COMPUTE_DEMONSTRATION_ONLY_ROTATION_TIMES';

describe('the configuration of the signing worker', () => {
  it('ROT-008 refuses times that do not say what they are for, before the bundle is looked for', () => {
    assert.equal(readSigningConfig(env).times, productionTimes);
    assert.equal(readSigningConfig({ ...env, [name]: 'yes-for-demonstrations-only:1000,100,2000' }).times.overlapMs, 1_000);
    assert.throws(() => readSigningConfig({ ...env, [name]: '1,2,3' }), { code: 'INVALID_CONFIG', message: /yes-for-demonstrations-only/ });
  });

  it('R-04 says where the gateways read their certificate, and which workload issuer has its keys exchanged', () => {
    const env = { BETTER_COMPUTE_DATABASE_URL: 'postgres://x', BETTER_COMPUTE_HOME: '/srv/bc', BETTER_COMPUTE_SECRET: 's'.repeat(32) };
    const alone = readSigningConfig(env);
    assert.deepEqual([alone.tlsFolder, alone.workload], ['/srv/bc/tls', null]);
    const told = readSigningConfig({ ...env, BETTER_COMPUTE_TLS: '/etc/tls', BETTER_COMPUTE_WORKLOAD_ISSUER: 'https://id.example.com' });
    assert.equal(told.tlsFolder, '/etc/tls');
    assert.equal(told.workload?.issuer, 'https://id.example.com');
    assert.throws(() => readSigningConfig({ ...env, BETTER_COMPUTE_WORKLOAD_ISSUER: 'http://id.example.com' }), /^ControlError: /);
  });
});
