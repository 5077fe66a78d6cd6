/** The pages as bytes: what is on them, what never is, and who may read them. */
import assert from 'node:assert/strict';
import { escapeHtml, html } from '../../api/console/html.ts';
import { batch, bearer, type ConsoleWorld, startConsole } from './console-support.ts';

describe('the console', () => {
  let world: ConsoleWorld;
  const worlds: ConsoleWorld[] = [];
  const start = async (...args: Parameters<typeof startConsole>): Promise<ConsoleWorld> => {
    worlds.push(await startConsole(...args));
    return worlds.at(-1) as ConsoleWorld;
  };
  before(async () => {
    world = await start();
  });
  after(() => Promise.all(worlds.map((one) => one.close())));

  const get = async (path: string, cookie?: string, from = world): Promise<Response> =>
    fetch(`${from.url}${path}`, { redirect: 'manual', ...(cookie === undefined ? {} : { headers: { cookie } }) });
  const page = async (path: string, from = world): Promise<string> => (await get(path, await from.signIn(), from)).text();

  it('shows nothing to a stranger but where to sign in', async () => {
    for (const path of ['/console', '/console/batches/b-7f3a']) {
      const answer = await get(path);
      assert.deepEqual([answer.status, answer.headers.get('location')], [303, '/console/login']);
      const wrong = await get(path, 'bc_console=another');
      assert.deepEqual([wrong.status, wrong.headers.get('location')], [303, '/console/login']);
    }
    assert.match(await (await get('/console/login')).text(), /<form method="post" action="\/console\/login">/);
  });

  it('keeps a good bearer where no script and no other site reaches it, and tells a wrong one at once', async () => {
    const post = (token: string): Promise<Response> =>
      fetch(`${world.url}/console/login`, { method: 'POST', body: new URLSearchParams({ token }), redirect: 'manual' });
    const good = await post(bearer);
    assert.deepEqual([good.status, good.headers.get('location')], [303, '/console']);
    assert.equal(good.headers.get('set-cookie'), `bc_console=${bearer}; Path=/console; HttpOnly; SameSite=Strict`);
    for (const token of ['wrong', '', 'x'.repeat(9_000), 'with\r\nset-cookie: a=b']) {
      const answer = await post(token);
      assert.deepEqual([answer.status, answer.headers.get('set-cookie')], [401, null], token.slice(0, 20));
      assert.match(await answer.text(), /class="problem">[^<]+bearer token/);
    }
  });

  it('runs no script, loads nothing from elsewhere and is framed by nobody', async () => {
    for (const path of ['/console/login', '/console', '/console/batches/b-7f3a', '/console/batches/none']) {
      const answer = await get(path, await world.signIn());
      assert.equal(
        answer.headers.get('content-security-policy'),
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
      );
      assert.doesNotMatch(await answer.text(), /<script|javascript:|\son\w+=|https?:\/\//i);
    }
    assert.match((await get('/console/style.css')).headers.get('content-type') ?? '', /^text\/css/);
  });

  it('says what an approver must know: scope, risk, who signed, what remains, the exact command', async () => {
    const text = await page('/console/batches/b-7f3a');
    for (const part of [
      '500 operations for tenant research, asked for by ann',
      'kernel update, one rack after another\nticket 4711',
      '50 machines at 2 sites.',
      'Half or more of hel-1 at once.',
      '75 % of 40',
      '2 % of 1 200',
      '1 operation of 500 may run with any payload',
      `1 of 3 approvals; 2 more are needed before 2026-11-30T14:00:00Z.`,
      `<code>${'c3'.repeat(32)}</code>`,
      `better-compute batch approve b-7f3a --key approver.pem --root ${batch.root}`,
      'temporal workflow update execute --workflow-id batch/b-7f3a --name approve --input-file approval.json',
      '0 of 500 commands released, in waves: 10 % at a time.',
      'This page reads. It signs nothing',
    ])
      assert.ok(text.includes(part), `${part}\n${text}`);
  });

  it('asks for no approval that is there, and for none of a batch that has ended', async () => {
    const three = ['1', '2', '3'].map((digit) => ({ kid: digit.repeat(64), at: 0 }));
    const other = await start([
      { ...batch, id: 'full', state: 'approved', approvals: three },
      { ...batch, id: 'gone', state: 'expired', notAfterMs: 0 },
      { ...batch, id: 'free', state: 'approved', required: 0, approvals: [], members: 0 },
    ]);
    const [full, gone, free] = [
      await page('/console/batches/full', other),
      await page('/console/batches/gone', other),
      await page('/console/batches/free', other),
    ];
    for (const text of [full, gone, free]) assert.doesNotMatch(text, /batch approve/);
    assert.match(full, /All 3 approvals are there\./);
    assert.match(gone, /1 of 3 approvals came before it ended\./);
    assert.match(free, /No approver set was published/);
    assert.match(free, /None is in the batch yet/);
  });

  it('BAT-055 warns of an agent, on its proposals alone', async () => {
    const proposedBy = "Proposed by agent rack-bot for ann (delegation d-1): the reason is the agent's own text";
    const other = await start([batch, { ...batch, id: 'agent', proposedBy }]);
    const warning = `<p class="warning">${escapeHtml(proposedBy)}</p>`;
    assert.ok((await page('/console/batches/agent', other)).includes(warning));
    assert.doesNotMatch(await page('/console/batches/b-7f3a', other), /Proposed by agent/);
    assert.equal((await page('/console', other)).split('Proposed by agent').length, 2);
  });

  it('says what is wrong where there is nothing to show', async () => {
    const answer = await get('/console/batches/none', await world.signIn());
    assert.equal(answer.status, 404);
    assert.match(await answer.text(), /<p class="problem">no batch is called none<\/p>/);
  });

  it('BAT-056 writes whatever was stored as text, and what a screen would hide as its code point', async () => {
    const evil = `<script>alert(1)</script>"'&\u202egnirts\u200b\u001b[31m\u0000`;
    const other = await start([{ ...batch, id: 'b', reason: evil, createdBy: evil, tenantId: evil, waves: evil, trustDomain: evil }]);
    for (const path of ['/console', '/console/batches/b']) {
      const text = await page(path, other);
      assert.doesNotMatch(text, /<script|\p{Cf}|(?!\n)\p{Cc}/u);
      assert.ok(text.includes('&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;⟨U+202E⟩gnirts⟨U+200B⟩⟨U+001B⟩[31m⟨U+0000⟩'));
    }
  });

  it('offers no command to copy for a batch whose id or root a shell would read', async () => {
    const other = await start([
      { ...batch, id: 'b;reboot' },
      { ...batch, id: 'b2', root: '$(reboot)' },
    ]);
    for (const id of ['b;reboot', 'b2']) {
      const text = await page(`/console/batches/${encodeURIComponent(id)}`, other);
      assert.doesNotMatch(text, /batch approve|workflow update/);
      assert.match(text, /do not approve it, and find out who wrote it/);
    }
  });

  it('trusts no object that only looks like a piece of HTML', () => {
    const forged = JSON.parse('{"html":"<script>"}') as ReturnType<typeof html>;
    assert.throws(() => html`<p>${forged}</p>`, /only looks like HTML/);
    assert.equal(html`<p>${html`<b>${'<'}</b>`}${['a', 1, null]}</p>`.html, '<p><b>&lt;</b>a1</p>');
  });
});
