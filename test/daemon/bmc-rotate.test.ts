import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { createCredentialBroker, memoryRefusals, nextTryMs } from '../../daemon/site/bmc/credential-broker.ts';
import { openRefusals, refusalsPath } from '../../daemon/site/bmc/refusals-file.ts';
import { hour } from '../../domain/time.ts';
import { site } from '../../proto/index.ts';
import type { FakeBmc, FaultScript } from '../fakes/bmc/server.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { account, credentialRef, nextRef, setBmcStage, valueOf } from './bmc-stage.ts';

const next = { username: 'root', password: 'staple-battery-2' };
const isLogin = ({ method, path }: { method: string; path: string }) => method === 'POST' && path.endsWith('/Sessions');
const logins = (bmc: FakeBmc) => bmc.requests.filter(isLogin).length;

describe('bmc.rotate', () => {
  const stage = setBmcStage();
  const rotation = { payload: { newCredentialRef: nextRef }, commandId: 'machine/m-1/rotate-bmc/run-1/rotate.1' };
  beforeEach(() => stage.secrets.set(nextRef, next));

  it('changes the password, proves it by a login with the new one, and closes what the old one had opened', async () => {
    const bmc = await stage.bmcWith({ quirks: ['sessions-survive-password'] });
    const end = valueOf(site.BmcRotateResultSchema, await stage.perform('bmc.rotate', bmc, rotation));
    assert.deepEqual([end.account, end.already, end.sessionsClosed], ['/redfish/v1/AccountService/Accounts/2', false, 1]);
    assert.deepEqual([bmc.state.password, bmc.effects.passwordChanges, bmc.effects.loginsFailed], [next.password, 1, 0]);
    assert.equal(bmc.effects.sessionsOpen, 0);
  });

  it('SEC-021 asks twice, for the credential and for the new one, by the command’s own step', async () => {
    await stage.perform('bmc.rotate', await stage.bmcWith(), rotation);
    const step = { workflowId: 'machine/m-1/rotate-bmc/run-1', stepId: 'rotate.1' };
    assert.deepEqual(stage.asked, [
      [credentialRef, step],
      [nextRef, step],
    ]);
    stage.asked.length = 0;
    await stage.perform('bmc.power', await stage.bmcWith(), { payload: { action: site.PowerAction.ON } });
    assert.equal(stage.asked.length, 1, 'another command is told by a question of its own');
  });

  it('M42 nothing goes out under a session of the old password once there is a new one', async () => {
    const bmc = await stage.bmcWith({ quirks: ['sessions-survive-password'] });
    await stage.perform('bmc.rotate', bmc, rotation);
    const at = bmc.requests.findIndex(({ method, path }) => method === 'PATCH' && path.includes('/Accounts/'));
    const old = String(bmc.requests[at]?.headers['x-auth-token']);
    assert.ok(old.length > 10);
    assert.ok(bmc.requests.slice(at + 1).length >= 2);
    for (const { headers } of bmc.requests.slice(at + 1)) assert.notEqual(headers['x-auth-token'], old);
    stage.secrets.set(credentialRef, next);
    await stage.perform('bmc.power', bmc, { payload: { action: site.PowerAction.ON } });
    assert.equal(bmc.effects.loginsFailed, 0);
  });

  it('M43 an account that must change its password first is changed where the refusal says, before anything is listed', async () => {
    const bmc = await stage.bmcWith({ quirks: ['password-change-required'] });
    const end = valueOf(site.BmcRotateResultSchema, await stage.perform('bmc.rotate', bmc, rotation));
    assert.deepEqual([end.account, bmc.state.password], ['/redfish/v1/AccountService/Accounts/2', next.password]);
    const at = bmc.requests.findIndex(({ method }) => method === 'PATCH');
    assert.ok(
      bmc.requests.slice(0, at).every(({ path }) => !path.endsWith('/Accounts')),
      'no list of accounts was asked for',
    );
    const foreign = await stage.bmcWith({
      script: ({ method, path }) =>
        method === 'GET' && path.includes('AccountService')
          ? {
              kind: 'answer',
              status: 403,
              body: '{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.12.PasswordChangeRequired","MessageArgs":["https://10.9.9.9/steal"]}]}}',
            }
          : undefined,
    });
    await assert.rejects(stage.perform('bmc.rotate', foreign, rotation), { code: 'PERMISSION_DENIED' });
    assert.equal(
      foreign.requests.some(({ method }) => method === 'PATCH'),
      false,
    );
  });

  it('M40 the answer to the change is lost or is an error: a login tells, nothing is sent again', async () => {
    const patch: FaultScript = ({ method }) => (method === 'PATCH' ? { kind: 'cut-after' } : undefined);
    for (const options of [{ script: patch }, { quirks: ['password-half-done'] as const }]) {
      const bmc = await stage.bmcWith(options);
      const end = valueOf(site.BmcRotateResultSchema, await stage.perform('bmc.rotate', bmc, rotation));
      assert.deepEqual([end.already, bmc.effects.passwordChanges, bmc.effects.loginsFailed], [false, 1, 0]);
      assert.match(end.notes.join(), /the answer to the change of password was lost: a login with the new one tells/);
    }
    const undone = await stage.bmcWith({ script: ({ method }) => (method === 'PATCH' ? { kind: 'cut-before' } : undefined) });
    await assert.rejects(stage.perform('bmc.rotate', undone, rotation), { code: 'UNAVAILABLE', message: /does not answer \(PATCH/ });
    assert.deepEqual([undone.effects.loginsFailed, undone.state.password, undone.state.lockedUntilMs], [1, account.password, 0]);
  });

  // Where an agent dies: what happened before is what it leaves, the next start takes it up.
  const deaths: readonly (readonly [string, FaultScript, { failed: number; changes: number }])[] = [
    ['before the change', ({ method }) => (method === 'PATCH' ? { kind: 'hang' } : undefined), { failed: 1, changes: 1 }],
    ['after the change, before its answer', () => undefined, { failed: 0, changes: 1 }],
  ];
  for (const [where, script, expected] of deaths) {
    it(`M40 M38 an agent that dies ${where} finds with at most two logins which password holds`, async () => {
      let isAlive = false;
      const bmc = await stage.bmcWith({ lockoutThreshold: 3, script: (request, count) => (isAlive ? undefined : script(request, count)) });
      const abort = new AbortController();
      stage.clock.onSleep = undefined;
      const dying = stage.perform('bmc.rotate', bmc, { ...rotation, signal: abort.signal });
      if (where === 'before the change') {
        const { eventually } = await import('../harness/eventually.ts');
        await eventually('it hangs', () => bmc.requests.some(({ method }) => method === 'PATCH'));
        abort.abort(new Error('gone'));
        await assert.rejects(dying);
      } else await dying;
      isAlive = true;
      const before = logins(bmc);
      const end = valueOf(
        site.BmcRotateResultSchema,
        await stage.perform('bmc.rotate', bmc, { ...rotation, how: 'recover', note: { holds: 'current' } }),
      );
      assert.equal(end.already, where !== 'before the change');
      assert.equal(bmc.state.password, next.password);
      assert.deepEqual([bmc.effects.loginsFailed, bmc.effects.passwordChanges], [expected.failed, expected.changes]);
      assert.ok(logins(bmc) - before <= 4, 'two to find which holds, one to go on, one to prove');
      assert.equal(bmc.state.lockedUntilMs, 0);
    });
  }

  it('M40 both passwords are refused: two logins, then none, also after a restart, and the account is not locked', async () => {
    const refusals = memoryRefusals();
    const bmc = await stage.bmcWith({ lockoutThreshold: 3 });
    bmc.state.password = 'somebody-changed-it';
    for (let tries = 0; tries < 5; tries += 1) {
      const handlers = stage.handlers({ refusals });
      await assert.rejects(stage.perform('bmc.rotate', bmc, { ...rotation, handlers, how: tries === 0 ? 'run' : 'recover' }), {
        code: 'UNAUTHENTICATED',
        message: /takes neither the current nor the new password; nothing more is tried/,
      });
    }
    assert.deepEqual([bmc.effects.loginsFailed, logins(bmc), bmc.state.lockedUntilMs], [2, 2, 0]);
  });

  it('M39 after the first refused login every consumer of this controller stops, until the secret changes or an hour is over', async () => {
    const handlers = stage.handlers();
    const bmc = await stage.bmcWith({ lockoutThreshold: 3 });
    bmc.state.password = 'somebody-changed-it';
    const power = { payload: { action: site.PowerAction.ON }, handlers };
    await assert.rejects(stage.perform('bmc.power', bmc, power), {
      code: 'UNAUTHENTICATED',
      message: /refused POST .*\/Sessions with 401: .*; no other login is tried with this password$/,
    });
    for (const kind of ['bmc.power', 'bmc.boot', 'bmc.inventory'] as const) {
      await assert.rejects(stage.perform(kind, bmc, { ...power, how: 'recover' }), {
        code: 'UNAUTHENTICATED',
        message: /^no login at .* is tried before 2026-.*: its account refused this agent, and would be locked; correct the secret$/,
      });
    }
    assert.deepEqual([bmc.effects.loginsFailed, bmc.state.lockedUntilMs], [1, 0]);
    stage.secrets.set(credentialRef, { username: 'root', password: 'somebody-changed-it' });
    assert.equal((await stage.perform('bmc.power', bmc, power)).kind, 'succeeded');
    bmc.state.password = 'and-again';
    await assert.rejects(stage.perform('bmc.power', bmc, power), { code: 'UNAUTHENTICATED' });
    stage.clock.advance(hour + 1);
    bmc.state.password = 'somebody-changed-it';
    assert.equal((await stage.perform('bmc.power', bmc, power)).kind, 'succeeded');
  });

  it('M39 counts: a refusal stops its password, two stop all, an answer that never came counts, a right login forgets', async () => {
    const at = Date.UTC(2026, 0, 1);
    const refusal = (version: string, atMs: number, isCertain = true) => ({ version, atMs, isCertain });
    assert.equal(nextTryMs([], 'a', at), null);
    assert.equal(nextTryMs([refusal('a', at)], 'a', at + 1), at + hour);
    assert.equal(nextTryMs([refusal('a', at)], 'b', at + 1), null);
    assert.equal(nextTryMs([refusal('a', at), refusal('b', at + 5)], 'c', at + 6), at + hour);
    assert.equal(nextTryMs([refusal('a', at, false)], 'a', at + 1), null, 'not known to be refused: once more');
    assert.equal(nextTryMs([refusal('a', at, false), refusal('a', at, false)], 'a', at + 1), at + hour);
    assert.equal(nextTryMs([refusal('a', at)], 'a', at + hour), null);
    const store = memoryRefusals();
    const broker = createCredentialBroker({ address: 'b', store, now: () => at });
    await broker.beforeLogin('a');
    assert.equal((await store.load('b')).length, 1, 'durable before the login is sent');
    await broker.notJudged('a');
    assert.equal((await store.load('b')).length, 0);
    await broker.beforeLogin('a');
    await broker.refused('a');
    await assert.rejects(broker.beforeLogin('a'), { code: 'UNAUTHENTICATED' });
    await broker.beforeLogin('b');
    await broker.loggedIn();
    await broker.beforeLogin('a');
  });

  it('M39 what was refused is counted on after a restart, and the file shows no password', async () => {
    const folder = scratchFolder();
    const bmc = await stage.bmcWith({ lockoutThreshold: 3 });
    bmc.state.password = 'somebody-changed-it';
    for (let starts = 0; starts < 4; starts += 1) {
      const handlers = stage.handlers({ refusals: await openRefusals(folder) });
      await assert.rejects(stage.perform('bmc.inventory', bmc, { handlers }), { code: 'UNAUTHENTICATED' });
    }
    assert.deepEqual([bmc.effects.loginsFailed, logins(bmc)], [1, 1]);
    const text = readFileSync(refusalsPath(folder), 'utf8');
    assert.ok(!text.includes(account.password) && text.includes(bmc.address));
    writeFileSync(refusalsPath(folder), text.slice(0, 40));
    await assert.rejects(openRefusals(folder), { code: 'DATA_CORRUPT' });
    bmc.state.password = account.password;
    const other = scratchFolder();
    await stage.perform('bmc.inventory', bmc, { handlers: stage.handlers({ refusals: await openRefusals(other) }) });
    assert.deepEqual(await (await openRefusals(other)).load(bmc.address), [], 'a right login forgets');
    removeScratchFolders();
  });

  it('M24 refuses what the controller would cut or refuse before anything is sent, and never shows a password', async () => {
    const bmc = await stage.bmcWith();
    const cases: readonly (readonly [unknown, RegExp])[] = [
      [{ ...next, username: 'admin' }, /has another name than the one that holds/],
      [account, /has the password that holds/],
      [{ ...next, password: 'with a space' }, /printable ASCII without spaces/],
      [{ ...next, password: 'x'.repeat(21) }, /takes passwords of 8 to 20 characters, the new one has 21/],
      ['{"username":"root"', /is not an account of a controller/],
    ];
    for (const [value, message] of cases) {
      stage.secrets.set(nextRef, value as string);
      await assert.rejects(stage.perform('bmc.rotate', bmc, rotation), { code: 'INVALID_INPUT', message });
    }
    stage.secrets.set(nextRef, next);
    stage.secrets.set(nextRef, { ...next, password: 'longer-than-it-takes-in-truth' });
    const script: FaultScript = ({ method }) =>
      method === 'PATCH'
        ? {
            kind: 'answer',
            status: 400,
            body: '{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.12.PropertyValueFormatError","Message":"The value longer-than-it-takes-in-truth is wrong"}]}}',
          }
        : undefined;
    const echo = await stage.bmcWith({
      script,
      overrides: { '/redfish/v1/AccountService': { MinPasswordLength: 0, MaxPasswordLength: 0 } },
    });
    await assert.rejects(stage.perform('bmc.rotate', echo, rotation), (error: Error) => {
      assert.match(error.message, /with 400: "The value \[secret\] is wrong"/);
      assert.equal(JSON.stringify(error).includes('longer-than'), false);
      return true;
    });
  });
});
