/** The entry as a process and as a stream: what it does with lines that are no cases, and that standard output carries answers only. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fc from 'fast-check';
import { maxLineBytes } from '../../../cli/conformance/lines.ts';
import { runConformance } from '../../../cli/conformance/run.ts';
import { sets } from '../../../cli/conformance/sets/table.ts';
import { isCode } from '../../../domain/errors.ts';
import { encodePublicJwk, signJws } from '../../../pki/jose/index.ts';
import { projectRoot } from '../../harness/imports.ts';
import { createKey, refusedWith } from '../../pki/x509/authorities.ts';

interface Answer {
  readonly id: unknown;
  readonly result: string;
  readonly code?: string;
  readonly value?: unknown;
}

async function* chunked(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const answersTo = async (set: string, input: Uint8Array | string, { size = 65_536, withReasons = false } = {}): Promise<Answer[]> => {
  let out = '';
  const write = async (text: string): Promise<void> => void (out += text);
  await runConformance({ set, withReasons }, { input: chunked(Buffer.from(input), size), write, now: () => 0 });
  return out
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Answer);
};

const good = JSON.stringify({ id: 'good', ikm: '0b', salt: '', info: '', size: 4 });
const goodAnswer: Answer = { id: 'good', result: 'accept', value: 'd73d5cae' };

describe('the conformance entry', () => {
  const malformed: ReadonlyArray<readonly [name: string, line: Uint8Array | string, id: unknown, code: string]> = [
    ['an empty line', '', null, 'MALFORMED'],
    ['blanks', '   ', null, 'MALFORMED'],
    ['words', 'not json', null, 'MALFORMED'],
    ['half an object', '{"id":"x"', null, 'MALFORMED'],
    ['a list', '[{"id":"x"}]', null, 'MALFORMED'],
    ['null', 'null', null, 'MALFORMED'],
    ['a number', '7', null, 'MALFORMED'],
    ['bytes that are not UTF-8', Buffer.from('{"id":"\xff"}', 'latin1'), null, 'MALFORMED'],
    ['a byte order mark alone', '\ufeff', null, 'MALFORMED'],
    ['no members', '{}', null, 'MALFORMED'],
    ['an id of another type', '{"id":{"a":1}}', null, 'MALFORMED'],
    ['a member missing', '{"id":"x","ikm":"00","salt":"","info":""}', 'x', 'MALFORMED'],
    ['a member of another type', '{"id":1,"ikm":5,"salt":"","info":"","size":4}', 1, 'MALFORMED'],
    ['hex of odd length', '{"id":"x","ikm":"000","salt":"","info":"","size":4}', 'x', 'MALFORMED'],
    ['hex with blanks', '{"id":"x","ikm":"00 0","salt":"","info":"","size":4}', 'x', 'MALFORMED'],
    ['a size that is none', '{"id":"x","ikm":"00","salt":"","info":"","size":1.5}', 'x', 'INVALID_INPUT'],
    ['a prototype', '{"id":"x","__proto__":{"ikm":"00","salt":"","info":"","size":4}}', 'x', 'MALFORMED'],
    ['brackets without end', '['.repeat(200_000), null, 'MALFORMED'],
    ['a line over the bound', Buffer.alloc(maxLineBytes + 1, 0x20), null, 'FRAME_TOO_LARGE'],
    ['an object over the bound', `{"id":"x","ikm":"${'00'.repeat(maxLineBytes / 2)}"}`, null, 'FRAME_TOO_LARGE'],
  ];
  for (const [name, line, id, code] of malformed)
    it(`refuses ${name} with ${code}, and answers what stands around it`, async () => {
      const around = Buffer.concat([Buffer.from(`${good}\n`), Buffer.from(line), Buffer.from(`\n${good}\n`)]);
      assert.deepEqual(await answersTo('hkdf', around), [goodAnswer, { id, result: 'refuse', code }, goodAnswer]);
    });

  it('names the member that is wrong, on request', async () => {
    const [answer] = await answersTo('hkdf', '{"id":"x","ikm":"0"}', { withReasons: true });
    assert.deepEqual(answer, { id: 'x', result: 'refuse', code: 'MALFORMED', reason: 'case', message: "the case's ikm is not hex" });
  });

  it('reads lines however the bytes come, with either line end, and the last one without', async () => {
    const text = `${good}\r\n\n${good}\n${good}`;
    for (const size of [1, 2, 7, 64, 1_000])
      assert.deepEqual(await answersTo('hkdf', text, { size }), [
        goodAnswer,
        { id: null, result: 'refuse', code: 'MALFORMED' },
        goodAnswer,
        goodAnswer,
      ]);
    assert.deepEqual(await answersTo('hkdf', ''), []);
  });

  it('answers one line for any line, in every set, with a code of the table', async () => {
    const names = [
      'id',
      'spki',
      'msg',
      'sig',
      'point',
      'private',
      'key',
      'iv',
      'aad',
      'ct',
      'tag',
      'jws',
      'jwe',
      'group',
      'case',
      'text',
      'derB64',
      'krlB64',
      'encoding',
      'validation_kind',
      'trusted_certs',
      'untrusted_intermediates',
      'peer_certificate',
      'peer_name',
      'keys',
      'public',
    ];
    const value = fc.oneof(
      fc.string(),
      fc.constantFrom('p1363', 'der', 'SERVER', '00', 'AAAA', 'e30.e30.', '....'),
      fc.array(fc.string()),
      fc.dictionary(fc.constantFrom(...names), fc.jsonValue()),
      fc.jsonValue(),
    );
    const line = fc.oneof(
      { weight: 4, arbitrary: fc.dictionary(fc.constantFrom(...names), value).map((one) => JSON.stringify(one)) },
      { weight: 1, arbitrary: fc.string() },
    );
    const lines = fc.array(
      line.map((text) => text.replaceAll('\n', ' ')),
      { minLength: 1, maxLength: 8 },
    );
    for (const set of Object.keys(sets))
      await fc.assert(
        fc.asyncProperty(lines, async (many) => {
          const answers = await answersTo(set, `${many.join('\n')}\n`);
          assert.equal(answers.length, many.length);
          for (const { result, code } of answers)
            assert.ok(result === 'accept' || (isCode(code) && code !== 'INTERNAL'), `${set}: ${code} for ${JSON.stringify(many)}`);
        }),
        { numRuns: 40 },
      );
  }).timeout(60_000);

  it('judges a token by the key set beside it: each kid once, every key for this job', async () => {
    const { signer, spki } = createKey();
    const good = encodePublicJwk(spki, 'sig');
    const jws = await signJws({ signer, typ: 'test', payload: Buffer.from('foo') });
    const groups = [
      { public: { keys: [good] }, private: { keys: [] } },
      { private: { keys: [good] } },
      { public: { keys: [good, good] } },
      { public: { keys: [good, { kty: 'oct', k: 'AAAA', kid: 'k' }] } },
      { public: { keys: [{ ...good, use: 'enc' }] } },
      { public: { keys: [] } },
      { public: null },
      {},
    ];
    const lines = groups.map((group, id) => JSON.stringify({ id, group, case: { jws } })).join('\n');
    const answers = await answersTo('jwk', lines);
    assert.deepEqual(
      answers.map(({ result, code, value }) => code ?? `${result} ${String(value)}`),
      ['accept 666f6f', 'accept 666f6f', 'MALFORMED', 'UNSUPPORTED', 'UNSUPPORTED', 'BAD_SIGNATURE', 'MALFORMED', 'MALFORMED'],
    );
  });

  it('a set that does not exist is an error that lists those that do', async () => {
    for (const set of ['', 'x508', 'constructor', '__proto__'])
      await assert.rejects(
        answersTo(set, `${good}\n`),
        refusedWith('INVALID_INPUT', 'unknown-set', set === '' ? /^no set is named$/ : /^there is no set "/),
      );
  });
});

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

const runEntry = (words: readonly string[], input: string): Promise<Ran> =>
  new Promise((resolve) => {
    const child = spawn('npm', ['run', '-s', 'conformance', '--', ...words], { cwd: projectRoot });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => (out += data));
    child.stderr.on('data', (data) => (err += data));
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
    child.on('close', (code) => resolve({ code, out, err }));
  });

describe('npm run -s conformance', () => {
  it('writes the answers and nothing else to standard output, thousands in one process', async () => {
    const count = 5_000;
    const input = Array.from({ length: count }, (_, i) => JSON.stringify({ id: i, ikm: '0b', salt: '', info: '', size: 4 })).join('\n');
    const { code, out, err } = await runEntry(['hkdf'], `${input}\n\n`);
    assert.equal(code, 0, err);
    const answers = out
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Answer);
    assert.deepEqual(
      answers.map(({ id }) => id),
      [...Array(count).keys(), null],
    );
    assert.deepEqual(answers[count - 1], { id: count - 1, result: 'accept', value: 'd73d5cae' });
  }).timeout(60_000);

  const wrong: ReadonlyArray<readonly [words: readonly string[], err: RegExp]> = [
    [[], /^error: no set is named\nhint: name one of es256, ed25519, .*ws-frames\n$/],
    [['x508'], /^error: there is no set "x508"\nhint: name one of es256, /],
    [['hkdf', 'es256'], /^error: one set is named, not "hkdf es256"\nhint: npm run -s conformance -- <set> \[--reasons\] < cases\n$/],
    [['hkdf', '--quick'], /^error: one set is named, not "hkdf --quick"\n/],
  ];
  for (const [words, told] of wrong)
    it(`says what is wrong with "${words.join(' ')}" on standard error, and exits with 2`, async () => {
      const { code, out, err } = await runEntry(words, '');
      assert.deepEqual({ code, out }, { code: 2, out: '' });
      assert.match(err, told);
    }).timeout(60_000);
});
