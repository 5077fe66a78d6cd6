/** The pages as people see them, in a real browser. Skipped by name where there is none. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { projectRoot } from '../harness/imports.ts';
import { batch, bearer, type ConsoleWorld, startConsole, startMachineConsole } from './console-support.ts';

const program = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
/** Where pictures are kept, to be looked at: `BC_TEST_PICTURES=<folder>`. */
const pictures = process.env['BC_TEST_PICTURES'] ?? join(projectRoot, '.cache', 'pictures');

describe('the console in Chromium (skipped where it is not installed)', function () {
  this.timeout(60_000);
  let browser: Browser | undefined;
  let world: ConsoleWorld | undefined;
  let machines: ConsoleWorld | undefined;
  const evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202egnisrever";

  before(async function () {
    if (program === undefined) return this.skip();
    mkdirSync(pictures, { recursive: true });
    browser = await chromium.launch({ executablePath: program, args: ['--no-sandbox'] });
    machines = await startMachineConsole();
    world = await startConsole([batch, { ...batch, id: 'evil', reason: evil, proposedBy: evil }]);
  });
  after(async () => {
    await browser?.close();
    await world?.close();
    await machines?.close();
  });

  async function signedIn(colorScheme: 'light' | 'dark' = 'light', at = world): Promise<{ page: Page; problems: string[] }> {
    const context = await (browser as Browser).newContext({ colorScheme, viewport: { width: 1_100, height: 900 } });
    const page = await context.newPage();
    const problems: string[] = [];
    page.on('console', (message) => void (message.type() === 'error' && problems.push(message.text())));
    page.on('pageerror', (error) => void problems.push(error.message));
    await page.goto(`${at?.url}/console`);
    assert.match(page.url(), /\/console\/login$/);
    await page.getByLabel('Bearer token').fill(bearer);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.waitForURL(/\/console$/);
    return { page, problems };
  }

  it('is signed in to, and leads from the list to a batch', async () => {
    const { page, problems } = await signedIn();
    await page.screenshot({ path: join(pictures, 'batches.png') });
    await page.getByRole('link', { name: 'b-7f3a' }).click();
    assert.equal(await page.locator('h1').innerText(), 'pending Batch b-7f3a');
    assert.equal(await page.getByText('1 of 3 approvals').isVisible(), true);
    await page.screenshot({ path: join(pictures, 'batch.png'), fullPage: true });
    assert.deepEqual(problems, [], 'the policy hinders nothing that the page needs');
    await page.context().close();
  });

  it('fits a phone and a dark room', async () => {
    const { page, problems } = await signedIn('dark');
    await page.setViewportSize({ width: 390, height: 800 });
    await page.goto(`${world?.url}/console/batches/b-7f3a`);
    assert.equal(await page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'), true, 'nothing is cut off at the side');
    await page.screenshot({ path: join(pictures, 'batch-phone-dark.png'), fullPage: true });
    assert.deepEqual(problems, []);
    await page.context().close();
  });

  it('BAT-056 shows what an attacker stored as text, in order, and runs none of it', async () => {
    const { page, problems } = await signedIn();
    await page.goto(`${world?.url}/console/batches/evil`);
    assert.match(await page.title(), /^Batch evil/);
    const shown = await page.locator('.reason').innerText();
    assert.equal(shown, evil.replace('\u202e', '⟨U+202E⟩'));
    assert.equal(await page.locator('img, script').count(), 0);
    // The cookie is not for scripts.
    assert.equal(await page.evaluate('document.cookie'), '');
    await page.screenshot({ path: join(pictures, 'batch-evil.png') });
    assert.deepEqual(problems, []);
    await page.context().close();
  });

  it('leads from the fleet by state to a machine and its phases in time', async () => {
    const { page, problems } = await signedIn('light', machines);
    await page.getByRole('link', { name: 'Machines' }).click();
    assert.equal(await page.locator('h1').innerText(), 'Machines');
    const bar = await page
      .locator('.bar .part')
      .evaluateAll((parts) => parts.map((part) => Math.round(part.getBoundingClientRect().width)));
    assert.equal(bar.length, 4);
    assert.ok(bar.every((width) => width > 20) && (bar[2] ?? 0) > (bar[0] ?? 0), `as wide as there are machines: ${bar.join()}`);
    await page.screenshot({ path: join(pictures, 'machines.png'), fullPage: true });
    await page.getByRole('link', { name: 'gpu-0117' }).click();
    assert.equal(await page.locator('h1').innerText(), 'provisioning Machine gpu-0117');
    assert.equal(await page.getByText('480.0 GB of 1920.4 GB').isVisible(), true);
    const lanes = await page
      .locator('.lane .part')
      .evaluateAll((parts) => parts.map((part) => Math.round(part.getBoundingClientRect().left)));
    assert.ok(
      lanes.every((left, at) => at === 0 || left >= (lanes[at - 1] ?? 0)) && new Set(lanes).size > 2,
      `one after another: ${lanes.join()}`,
    );
    await page.screenshot({ path: join(pictures, 'metal.png'), fullPage: true });
    await page.setViewportSize({ width: 390, height: 800 });
    assert.equal(await page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'), true, 'nothing is cut off at the side');
    assert.deepEqual(problems, [], 'the policy hinders nothing that the page needs');
    await page.context().close();
  });
});
