import assert from 'node:assert/strict';
import { z } from 'zod';
import { ControlError } from '../../domain/errors.ts';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { hostField, logLevelField, parseEnv, portField, rotationTimes, switchField } from '../../runtime/config.ts';

const schema = z.object({
  BETTER_COMPUTE_DATABASE_URL: z.string().startsWith('postgres', 'must be a PostgreSQL URL'),
  BETTER_COMPUTE_API_PORT: portField(8080),
  BETTER_COMPUTE_API_HOST: hostField(),
  BETTER_COMPUTE_LOG_LEVEL: logLevelField,
  BETTER_COMPUTE_CODEC: switchField(true),
});

const good = { BETTER_COMPUTE_DATABASE_URL: 'postgresql://localhost/x' };

function refusal(fn: () => unknown): ControlError {
  try {
    fn();
  } catch (error) {
    assert.ok(error instanceof ControlError, String(error));
    return error;
  }
  return assert.fail('nothing was refused');
}

describe('runtime/config', () => {
  it('parses into a frozen object with defaults, and takes an empty value as not set', () => {
    const config = parseEnv(schema, { ...good, BETTER_COMPUTE_API_PORT: '', PATH: '/bin' });
    assert.deepEqual(config, {
      BETTER_COMPUTE_DATABASE_URL: 'postgresql://localhost/x',
      BETTER_COMPUTE_API_PORT: 8080,
      BETTER_COMPUTE_API_HOST: '127.0.0.1',
      BETTER_COMPUTE_LOG_LEVEL: 'info',
      BETTER_COMPUTE_CODEC: true,
    });
    assert.ok(Object.isFrozen(config));
  });

  it('reports every problem at once', () => {
    const error = refusal(() =>
      parseEnv(schema, { ...good, BETTER_COMPUTE_API_PORT: '70000', BETTER_COMPUTE_LOG_LEVEL: 'loud', BETTER_COMPUTE_CODEC: 'yes' }),
    );
    assert.equal(error.code, 'INVALID_CONFIG');
    assert.equal(
      error.message,
      '3 problems in the environment: BETTER_COMPUTE_API_PORT "70000": must be a port number from 0 to 65535; ' +
        'BETTER_COMPUTE_LOG_LEVEL "loud": must be trace, debug, info, warn, error or fatal; BETTER_COMPUTE_CODEC "yes": must be "on" or "off"',
    );
  });

  it('names what is missing and what it is for', () => {
    const error = refusal(() => parseEnv(schema, {}));
    assert.equal(error.code, 'MISSING_ENV');
    assert.equal(error.message, 'BETTER_COMPUTE_DATABASE_URL is not set (PostgreSQL; without it start runs an embedded one)');
  });

  it('refuses an unknown name of ours with the nearest known one', () => {
    const error = refusal(() => parseEnv(schema, { ...good, BETTER_COMPUTE_GATEWAY_PROT: '1' }));
    assert.equal(error.code, 'INVALID_CONFIG');
    assert.equal(error.message, 'BETTER_COMPUTE_GATEWAY_PROT is not a name of this system (did you mean BETTER_COMPUTE_GATEWAY_PORT?)');
  });

  it('suggests nothing when no name is near', () => {
    const error = refusal(() => parseEnv(schema, { ...good, BETTER_COMPUTE_Q: '1' }));
    assert.equal(error.message, 'BETTER_COMPUTE_Q is not a name of this system');
  });

  it('accepts the names another process reads', () => {
    assert.doesNotThrow(() => parseEnv(schema, { ...good, BETTER_COMPUTE_METRICS_PORT: '1', BETTER_COMPUTE_HOME: '/x' }));
  });

  it('never repeats the value of a secret', () => {
    const error = refusal(() => parseEnv(schema, { BETTER_COMPUTE_DATABASE_URL: 'mysql://u:hunter2@h/x' }));
    assert.equal(error.message, 'BETTER_COMPUTE_DATABASE_URL: must be a PostgreSQL URL');
    assert.ok(!JSON.stringify(error.details).includes('hunter2'));
  });

  describe('ROT-008 the overlap', () => {
    const name = 'BETTER_COMPUTE_DEMONSTRATION_ONLY_ROTATION_TIMES';

    it('is 24 hours unless a demonstration is spelled out', () => {
      assert.equal(rotationTimes({}), productionTimes);
      assert.deepEqual(rotationTimes({ [name]: 'yes-for-demonstrations-only:20000,2000,15000' }), {
        overlapMs: 20_000,
        dropMarginMs: 2_000,
        workerLifetimeMs: 15_000,
      });
    });

    for (const value of [
      '20000,2000,15000',
      'yes:1,2,3',
      'yes-for-demonstrations-only:1,2',
      'yes-for-demonstrations-only:1,2,-3',
      'yes-for-demonstrations-only:0,2,3',
    ]) {
      it(`refuses "${value}"`, () => {
        const error = refusal(() => rotationTimes({ [name]: value }));
        assert.equal(error.code, 'INVALID_CONFIG');
        assert.equal(error.message, `${name} "${value}" must be yes-for-demonstrations-only:<overlapMs>,<marginMs>,<workerLifetimeMs>`);
      });
    }
  });
});
