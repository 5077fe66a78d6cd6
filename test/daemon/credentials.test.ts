/** Credentials that the desired state names, on the machine: what is asked for, which files come of it, and what is reported. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { sectionReports } from '../../daemon/agent/desired-state.ts';
import { parseDaemonConfig } from '../../daemon/config.ts';
import { credentialTimes, SpecCredentials, withCredentials } from '../../daemon/credentials/spec-credentials.ts';
import { SecretClient } from '../../daemon/secrets/client.ts';
import { openSpecStore } from '../../daemon/state/spec-store.ts';
import { hour, minute } from '../../domain/time.ts';
import { openSecretRequest, refuseSecretRequest, sealSecretResponse } from '../../pki/secrets/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import { NodeSpecSchema, type SecretRequest, SecretRequestSchema, SecretResponseSchema, SectionState } from '../../proto/index.ts';
import { eventually } from '../harness/eventually.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const now = Date.UTC(2030, 0, 1);
const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
const token = 'secret://k8s/eu-1/token';
const headers = 'vault://kv/otlp#headers';
const both = { k8sJoin: { tokenRef: token }, telemetry: { headersRef: headers } };

describe('credentials of the desired state in the daemon', () => {
  after(removeScratchFolders);
  const closing: SpecCredentials[] = [];
  afterEach(async () => {
    for (const one of closing.splice(0)) await one.close();
  });

  /** A daemon's part with a broker that knows these values. */
  async function machine(name: string, values: Record<string, string>) {
    const data = join(scratchFolder(), name);
    const folder = join(data, 'credentials');
    mkdirSync(data, { recursive: true });
    const requests: SecretRequest[] = [];
    const timers: { ms: number; callback: () => void }[] = [];
    const client = new SecretClient({ signer: () => signer, now: () => now, after: () => () => undefined });
    const session = {
      sendSecretRequest(request: SecretRequest): boolean {
        requests.push(request);
        const value = values[request.ref];
        const question = openSecretRequest(toBinary(SecretRequestSchema, request), { nodeKey: signer.spki });
        const bytes =
          value === undefined
            ? refuseSecretRequest(request.requestId, 'not-bound')
            : sealSecretResponse(question, { value: Buffer.from(value), expiresAt: now + minute });
        queueMicrotask(() => client.onResponse(session, fromBinary(SecretResponseSchema, bytes)));
        return true;
      },
    };
    client.onWelcomed(session);
    const credentials = new SpecCredentials({
      folder,
      secrets: client,
      log: silent,
      after(ms, callback) {
        const timer = { ms, callback };
        timers.push(timer);
        return () => void timers.splice(timers.indexOf(timer) >>> 0, 1);
      },
    });
    closing.push(credentials);
    const store = withCredentials(await openSpecStore(data), credentials);
    let generation = 0n;
    let reports = 0;
    return {
      folder,
      requests,
      timers,
      values,
      store,
      start: () => credentials.start(() => void (reports += 1)),
      get reports() {
        return reports;
      },
      async save(spec: MessageInitShape<typeof NodeSpecSchema>) {
        generation += 1n;
        await store.save({ generation, spec: toBinary(NodeSpecSchema, create(NodeSpecSchema, spec)) });
      },
      text: (file: string) => readFileSync(join(folder, file), 'utf8'),
      said: (spec: MessageInitShape<typeof NodeSpecSchema>) =>
        sectionReports(create(NodeSpecSchema, spec), store).map(({ section, state, detail }) => [section, SectionState[state], detail]),
      /** The next look, as if its time had come. @returns after how long it would have come */
      later(): number {
        const [timer] = timers.splice(0);
        assert.ok(timer !== undefined);
        timer.callback();
        return timer.ms;
      },
    };
  }

  it('SEC-007 SEC-026 SEC-027 asks for both, by section and field, and writes them for their units alone', async () => {
    const one = await machine('both', { [token]: 'abcdef.0123456789abcdef', [headers]: 'authorization=Bearer x' });
    await one.save(both);
    assert.deepEqual(one.said(both)[0], ['k8s-join', 'FAILED', 'its secret was not asked for yet']);
    one.start();
    await eventually('both are there', () => one.timers.length === 1);
    assert.deepEqual(
      one.requests.map(({ ref, workflowId, stepId, allocationId }) => [ref, workflowId, stepId, allocationId]),
      [
        [token, 'host:k8s-join', 'tokenRef', ''],
        [headers, 'host:telemetry', 'headersRef', ''],
      ],
    );
    assert.deepEqual([one.text('k8s-join.token'), one.text('telemetry.headers')], ['abcdef.0123456789abcdef', 'authorization=Bearer x']);
    assert.equal(statSync(one.folder).mode & 0o777, 0o700);
    for (const name of readdirSync(one.folder)) assert.equal(statSync(join(one.folder, name)).mode & 0o777, 0o600, name);
    assert.deepEqual(one.said(both), [
      ['k8s-join', 'APPLIED', ''],
      ['telemetry', 'APPLIED', ''],
    ]);
    assert.equal(one.reports, 1, 'the control plane is told once');
  });

  it('SEC-007 follows the spec: another reference, another file content; none, no file', async () => {
    const one = await machine('follows', { [token]: 'first', 'secret://k8s/eu-2/token': 'second', [headers]: 'h=1' });
    one.start();
    await one.save(both);
    await eventually('the first', () => one.timers.length === 1);
    await one.save({ ...both, k8sJoin: { tokenRef: 'secret://k8s/eu-2/token' } });
    await eventually('the second', () => one.text('k8s-join.token') === 'second' && one.timers.length === 1);
    await one.save({ k8sJoin: { tokenRef: '' } });
    await eventually('both are gone', () => readdirSync(one.folder).length === 0 && one.timers.length === 1);
    assert.deepEqual(one.said({ k8sJoin: {} }), [['k8s-join', 'APPLIED', 'it names no secret']]);
    await one.save({});
    await eventually('nothing is looked after', () => one.store.credentials?.size === 0);
    assert.equal(one.timers.length, 0);
  });

  it('a secret that was set anew arrives within the hour; one that stayed leaves its file untouched', async () => {
    const one = await machine('anew', { [token]: 'first', [headers]: 'h=1' });
    one.start();
    await one.save(both);
    await eventually('written', () => one.timers.length === 1);
    const { ino } = statSync(join(one.folder, 'telemetry.headers'));
    one.values[token] = 'anew';
    assert.equal(one.later(), hour);
    await eventually('asked again', () => one.timers.length === 1);
    assert.equal(one.text('k8s-join.token'), 'anew');
    assert.equal(statSync(join(one.folder, 'telemetry.headers')).ino, ino, 'a unit that watches it has nothing to do');
    assert.equal(one.reports, 1);
  });

  it('SEC-016 what is refused is reported by its word, leaves the file, and is asked for ever more seldom', async () => {
    const one = await machine('refused', { [token]: 'first', [headers]: 'h=1' });
    one.start();
    await one.save(both);
    await eventually('written', () => one.timers.length === 1);
    delete one.values[token];
    one.later();
    await eventually('refused', () => one.timers.length === 1);
    assert.match(String(one.said(both)[0]?.join(' ')), /^k8s-join FAILED .*refused secret:\/\/k8s\/eu-1\/token \(not-bound\)/);
    assert.deepEqual([one.said(both)[1]?.[1], one.text('k8s-join.token'), one.reports], ['APPLIED', 'first', 2]);
    const waits: number[] = [];
    for (let tries = 0; tries < 8; tries += 1) {
      waits.push(one.later());
      await eventually('refused again', () => one.timers.length === 1);
    }
    assert.deepEqual(
      waits.map((ms) => ms / minute),
      [1, 2, 4, 8, 16, 32, 60, 60],
    );
    assert.equal(credentialTimes.refreshMs, hour);
    one.values[token] = 'again';
    await one.save(both);
    await eventually('a new spec asks at once', () => one.text('k8s-join.token') === 'again');
  });

  it('takes up at its start what it kept, and takes away what is named no more', async () => {
    const one = await machine('kept', { [token]: 'first', [headers]: 'h=1' });
    mkdirSync(one.folder, { mode: 0o700 });
    writeFileSync(join(one.folder, 'telemetry.headers'), 'of before', { mode: 0o600 });
    await one.save({ k8sJoin: { tokenRef: token } });
    one.start();
    await eventually('carried out', () => one.timers.length === 1);
    assert.deepEqual(readdirSync(one.folder), ['k8s-join.token']);
  });

  it('writes nothing into a folder that others may enter, and claims nothing without one', async () => {
    const one = await machine('open', { [token]: 'first', [headers]: 'h=1' });
    mkdirSync(one.folder, { mode: 0o755 });
    writeFileSync(join(one.folder, 'of-another'), '');
    one.start();
    await one.save(both);
    await eventually('tried', () => one.timers.length === 1);
    assert.match(String(one.said(both)[0]), /k8s-join,FAILED,.*is open to other users .*: chmod 700 /);
    assert.deepEqual([existsSync(join(one.folder, 'k8s-join.token')), one.requests.length], [false, 0], 'nor is anything asked for');
    assert.deepEqual(
      sectionReports(create(NodeSpecSchema, both)).map(({ state, detail }) => [SectionState[state], detail]),
      Array.from({ length: 2 }, () => ['UNSUPPORTED', 'the configuration of this daemon names no credentialsFolder']),
    );
    assert.throws(
      () => parseDaemonConfig('config.json', '{"credentialsFolder":"relative"}'),
      /credentialsFolder: must be an absolute path/,
    );
  });
});
