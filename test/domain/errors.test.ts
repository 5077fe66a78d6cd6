import assert from 'node:assert/strict';
import { commandStateName, commandStates, isFinished } from '../../domain/commands/states.ts';
import { ControlError, codeOf, errorTable, isCode } from '../../domain/errors.ts';

describe('the error table', () => {
  it('says for each code what every edge needs', () => {
    for (const [code, row] of Object.entries(errorTable)) {
      assert.match(code, /^[A-Z_]+$/);
      assert.ok(row.exit > 0 && row.exit < 256, `${code} exits with a failure`);
      assert.ok(row.grpc >= 1 && row.grpc <= 16, `${code} is a gRPC status other than OK`);
      assert.ok(row.http >= 400 && row.http < 600, `${code} is an HTTP error`);
      assert.match(row.hint, /^[a-z].*[^.]$/, `${code}: lower case, no final period`);
      assert.ok(Object.isFrozen(row));
    }
  });

  it('what is not ours is INTERNAL, and a name from Object.prototype is no code', () => {
    assert.equal(codeOf(new TypeError('x')), 'INTERNAL');
    assert.equal(codeOf(new ControlError('NOT_FOUND', 'no node n1')), 'NOT_FOUND');
    assert.equal(isCode('toString'), false);
    assert.equal(isCode('REVOKED'), true);
  });

  it('an error keeps its cause apart from its message', () => {
    const error = new ControlError('UNAVAILABLE', 'database is away', { cause: new Error('ECONNREFUSED'), details: { reason: 'db' } });
    assert.equal(error.message.includes('ECONNREFUSED'), false);
    assert.equal((error.cause as Error).message, 'ECONNREFUSED');
    assert.ok(Object.isFrozen(error.details));
  });
});

describe('the states of a command', () => {
  it('open and acked may still end; every other state is an end', () => {
    for (const [name, value] of Object.entries(commandStates)) {
      assert.equal(commandStateName(value), name);
      assert.equal(isFinished(name as keyof typeof commandStates), value >= 2);
    }
    assert.equal(commandStateName(99), undefined);
  });
});
