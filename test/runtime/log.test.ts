import assert from 'node:assert/strict';
import fc from 'fast-check';
import { createLogger, isSecretName, type Log, redactText } from '../../runtime/log.ts';

function captured(level = 'trace'): { log: Log; lines: () => Record<string, unknown>[]; raw: () => string } {
  let text = '';
  const log = createLogger({ process: 'test', level, destination: { write: (line) => void (text += line) } });
  return {
    log,
    raw: () => text,
    lines: () =>
      text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as Record<string, unknown>),
  };
}

describe('runtime/log', () => {
  it('writes one JSON line with process, level, time and what the line is about', () => {
    const { log, lines } = captured();
    log.child({ workflowId: 'rotate-command-root', commandId: 'c1', nodeId: 'n1' }).info('sent');
    const [line] = lines();
    assert.equal(line?.['process'], 'test');
    assert.equal(line?.['level'], 'info');
    assert.equal(line?.['msg'], 'sent');
    assert.deepEqual([line?.['workflowId'], line?.['commandId'], line?.['nodeId']], ['rotate-command-root', 'c1', 'n1']);
    assert.ok(!Number.isNaN(Date.parse(String(line?.['time']))));
  });

  it('keeps lines below its level to itself', () => {
    const { log, raw } = captured('warn');
    log.info('quiet');
    assert.equal(raw(), '');
  });

  const secret = 'hunter2-hunter2';
  const places: Record<string, (log: Log) => void> = {
    'a key at the top': (log) => log.info({ secret }),
    'a key deep down': (log) => log.info({ a: { b: [{ c: { privateKey: secret } }] } }),
    'the bindings of a child': (log) => log.child({ token: secret }).info('x'),
    'a header': (log) => log.info({ headers: { authorization: `Bearer ${secret}` } }),
    'an environment': (log) => log.info({ env: { BETTER_COMPUTE_SECRET: secret, BETTER_COMPUTE_CODEC_KEY: secret } }),
    'a buffer under a secret key': (log) => log.info({ key: Buffer.from(secret) }),
    'the properties of an error': (log) => log.error({ err: Object.assign(new Error('x'), { passphrase: secret }) }),
    'the message of an error': (log) => log.error({ err: new Error(`connect postgres://u:${secret}@h/db failed`) }),
    'a join token in a message': (log) => log.info(`token bcj1.${secret}`),
    'a join string in a message': (log) => log.info(`use bcjoin1.${secret}`),
    'a ticket or workload token in a message': (log) => log.error({ err: new Error(`refused eyJhbGciOiJFUzI1NiJ9.${secret}.sig`) }),
    'a box in a field': (log) => log.info({ answer: `eyJhbGciOiJFQ0RILUVTIn0.a.b.${secret}.c` }),
    'a PEM key in a string': (log) => log.info({ file: `-----BEGIN PRIVATE KEY-----\n${secret}\n-----END PRIVATE KEY-----` }),
  };
  for (const [place, write] of Object.entries(places)) {
    it(`lets no secret out: ${place}`, () => {
      const { log, raw, lines } = captured();
      write(log);
      assert.equal(lines().length, 1);
      assert.ok(!raw().includes(secret), raw());
      assert.ok(!raw().includes(JSON.stringify([...Buffer.from(secret)]).slice(1, -1)), raw());
    });
  }

  it('lets no secret out at any depth under any path', () => {
    fc.assert(
      fc.property(fc.array(fc.stringMatching(/^[a-z]{1,8}$/), { maxLength: 8 }), (path) => {
        const { log, raw } = captured();
        log.info(path.reduceRight<unknown>((inner, name) => ({ [name]: inner }), { joinToken: secret }) as object);
        assert.ok(!raw().includes(secret));
      }),
    );
  });

  it('leaves names alone that only sound like secrets', () => {
    for (const name of ['tokenId', 'kid', 'publicKey', 'keyId', 'secretary', 'nodeId']) assert.equal(isSecretName(name), false, name);
    for (const name of ['secret', 'token', 'privateKey', 'key', 'passphrase', 'Authorization', 'BETTER_COMPUTE_SECRET'])
      assert.equal(isSecretName(name), true, name);
    assert.equal(redactText('nothing to hide: 127.0.0.1:5432'), 'nothing to hide: 127.0.0.1:5432');
  });
});
