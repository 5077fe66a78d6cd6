/**
 * The inventory of a controller that shows 3,061 resources; against the same requests, bare: one connection, no bounds, no verdicts, the
 * answers read as JSON. The controller is a process of its own, over TLS. By the clock: it waits for the controller, it does not compute.
 * And it asks for at most a fifth of what there is; it asks for far less.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Agent } from 'undici';
import { createBmcHandlers } from '../../daemon/site/bmc/handlers.ts';
import { ControlError } from '../../domain/errors.ts';
import type { site } from '../../proto/index.ts';
import { hasTree } from '../fakes/bmc/server.ts';
import type { Figure } from './main.ts';

const goal = 1.2;
const wholeTree = 3061;
const credential = { username: 'root', password: 'correct-horse-1' };
// A site agent is long-lived: what it runs has been compiled for good.
const [warmUps, rounds] = [40, 41];

interface Controller {
  readonly address: string;
  readonly pinSha256: string;
  readonly child: ChildProcess;
}

async function startController(): Promise<Controller> {
  const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const main = new URL(`../fakes/bmc/main.${ending}`, import.meta.url);
  const options = JSON.stringify({ tree: 'dell_poweredge_r750', credential });
  const loader = ending === 'ts' ? ['--import=tsx'] : [];
  const child = spawn(process.execPath, [...loader, main.pathname, options], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { ...(JSON.parse(line) as { address: string; pinSha256: string }), child };
}

async function ours({ address, pinSha256 }: Controller): Promise<site.BmcInventoryReport> {
  const handlers = createBmcHandlers({
    secrets: { read: async () => Buffer.from(JSON.stringify(credential)) },
    now: Date.now,
    config: { insecureHttp: [] },
    sleep: async () => undefined,
  });
  const context = { commandId: 'bench/inventory.1', signal: new AbortController().signal, now: Date.now, note: {} };
  const payload = {
    $typeName: 'bettercompute.site.v1.BmcInventory',
    address,
    nodeId: '',
    credentialRef: 'secret://bmc',
    pinSha256,
  } as const;
  const end = await handlers['bmc.inventory'].run(payload, { ...context, progress: () => undefined });
  if (end.kind !== 'succeeded') throw new ControlError('INTERNAL', `the inventory failed: ${JSON.stringify(end)}`);
  return end.value as site.BmcInventoryReport;
}

/** What the inventory asks for, in its order; a session before, its end after. */
const system = '/redfish/v1/Systems/System.Embedded.1';
const manager = '/redfish/v1/Managers/iDRAC.Embedded.1';
const expanded = (path: string): string => `${path}?$expand=.($levels=1)`;
const paths = [
  expanded('/redfish/v1/Systems'),
  manager,
  expanded(`${system}/EthernetInterfaces`),
  expanded(`${manager}/EthernetInterfaces`),
  expanded(`${system}/Storage`),
  expanded(`${system}/Storage/CPU.1`),
  '/redfish/v1/UpdateService',
  expanded('/redfish/v1/UpdateService/FirmwareInventory'),
  '/redfish/v1/AccountService',
];

async function bare({ address }: Controller): Promise<number> {
  const agent = new Agent({ connections: 1, connect: { rejectUnauthorized: false } });
  const origin = `https://${address}`;
  const sessions = '/redfish/v1/SessionService/Sessions';
  const get = async (path: string, headers = {}): Promise<void> => {
    const { body, statusCode } = await agent.request({ origin, path, method: 'GET', headers });
    if (statusCode !== 200) throw new ControlError('INTERNAL', `${path} answers ${statusCode}`);
    JSON.parse(await body.text());
  };
  try {
    await get('/redfish/v1/');
    const login = JSON.stringify({ UserName: credential.username, Password: credential.password });
    const session = await agent.request({
      origin,
      path: sessions,
      method: 'POST',
      body: login,
      headers: { 'content-type': 'application/json' },
    });
    await session.body.dump();
    const headers = { 'x-auth-token': String(session.headers['x-auth-token']) };
    for (const path of paths) await get(path, headers);
    await (await agent.request({ origin, path: String(session.headers['location']), method: 'DELETE', headers })).body.dump();
    return paths.length + 3;
  } finally {
    await agent.destroy();
  }
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;

async function msOf(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

export async function figure(): Promise<Figure> {
  if (!hasTree('dell_poweredge_r750')) {
    return {
      figure: 'metal-inventory',
      ratio: Number.NaN,
      measured: 'skipped',
      goal: `<= ${goal}`,
      holds: true,
      detail: 'the captured tree is not here',
    };
  }
  const controller = await startController();
  try {
    const found: { ours: number; bare: number }[] = [];
    for (let round = -warmUps; round < rounds; round += 1) {
      const times = { bare: await msOf(() => bare(controller)), ours: await msOf(() => ours(controller)) };
      if (round >= 0) found.push(times);
    }
    // Its session ends after the report is made.
    const requests = (await ours(controller)).requests + 1;
    const needed = await bare(controller);
    const ratio = Number(median(found.map((times) => times.ours / times.bare)).toFixed(3));
    const [oursMs, bareMs] = [median(found.map((times) => times.ours)), median(found.map((times) => times.bare))];
    const holds = ratio <= goal && requests <= goal * needed && requests <= wholeTree / 5;
    const detail = { requests, needed, wholeTree, oursMs: Math.round(oursMs), bareMs: Math.round(bareMs) };
    return { figure: 'metal-inventory', ratio, goal: `<= ${goal}`, holds, detail };
  } finally {
    controller.child.kill('SIGTERM');
  }
}
