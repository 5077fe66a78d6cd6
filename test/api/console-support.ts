/** A console over fixed answers, behind the api's own last handler, on a port of its own. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import type { BatchOnPage, BatchOverview, ConsolePorts } from '../../api/console/ports.ts';
import { createConsoleRouter } from '../../api/console/router.ts';
import { ControlError } from '../../domain/errors.ts';
import { aMachine, aWipedMachine, now as machinesNow, type ShownMachine } from './machine-support.ts';

export const bearer = 'the-bearer-of-an-operator';
export const now = Date.UTC(2026, 10, 30, 9, 0);

export const batch: BatchOnPage = {
  id: 'b-7f3a',
  tenantId: 'research',
  state: 'pending',
  reason: 'kernel update, one rack after another\nticket 4711',
  root: 'a1'.repeat(32),
  size: 500,
  required: 3,
  notAfterMs: now + 5 * 3_600_000,
  trustDomain: 'fleet.example',
  createdBy: 'ann',
  createdAt: now - 600_000,
  proposedBy: null,
  approvals: [{ kid: 'c3'.repeat(32), at: now - 60_000 }],
  members: 500,
  waves: '10 % at a time',
  progress: { held: 500, states: {} },
};

export const overview: BatchOverview = {
  machines: 50,
  scope: [
    { kind: 'node.reboot', site: 'hel-1', leaves: 300, payloads: 300, unbound: 0 },
    { kind: 'node.reboot', site: 'osl-2', leaves: 200, payloads: 199, unbound: 1 },
  ],
  sites: [
    { site: 'hel-1', machines: 30, of: 40 },
    { site: 'osl-2', machines: 20, of: 1_200 },
  ],
};

/** A console of machines alone, at the time of those machines. */
export const startMachineConsole = (fleet: readonly ShownMachine[] = someMachines()): Promise<ConsoleWorld> =>
  startConsole([batch], { fleet, at: machinesNow });

/** A few of each state, at two sites. */
export const someMachines = (): ShownMachine[] => [
  aWipedMachine().machine,
  ...Array.from({ length: 9 }, (_, at) =>
    aMachine(`gpu-01${20 + at}`, { state: 'provisioned', profileName: 'gpu-worker', power: 'on', connected: true }),
  ),
  ...Array.from({ length: 4 }, (_, at) => aMachine(`gpu-02${10 + at}`, { siteId: 'osl-2', rack: `r${at + 1}` })),
  aMachine('gpu-0301', {
    siteId: 'osl-2',
    state: 'quarantined',
    stateReason: 'dirty: the wipe of serial S6CKNT0X failed (nvme format: status 1)',
  }),
];

export interface ConsoleWorld {
  readonly url: string;
  /** Signs in and returns the cookie. */
  signIn(): Promise<string>;
  close(): Promise<void>;
}

export async function startConsole(
  shown: readonly BatchOnPage[] = [batch],
  { fleet = someMachines(), at = now }: { readonly fleet?: readonly ShownMachine[]; readonly at?: number } = {},
): Promise<ConsoleWorld> {
  const ports: ConsolePorts = {
    now: () => at,
    async authenticate(given) {
      if (given !== bearer) throw new ControlError('UNAUTHENTICATED', 'the bearer token is not the operator token of this deployment');
      return {
        name: 'operator',
        listBatches: async () => shown,
        async getBatch(id) {
          const found = shown.find((one) => one.id === id);
          if (found === undefined) throw new ControlError('NOT_FOUND', `no batch is called ${id}`);
          return { batch: found, overview };
        },
        listMachines: async ({ state }) => {
          const machines = fleet.filter((machine) => state === null || machine.state === state);
          const counts = [...new Set(fleet.map((one) => `${one.siteId} ${one.state}`))].map((key) => {
            const here = fleet.filter((one) => `${one.siteId} ${one.state}` === key);
            return { siteId: here[0]?.siteId ?? '', state: here[0]?.state ?? 'registered', machines: here.length };
          });
          return { machines, counts };
        },
        async getMachine(id, runId) {
          const found = fleet.find((one) => one.id === id);
          if (found === undefined) throw new ControlError('NOT_FOUND', `no machine is called ${id}`);
          const shownRun = found.runs.find((one) => one.id === (runId ?? found.runs[0]?.id));
          return { machine: found, run: shownRun === undefined ? null : { ...aWipedMachine().run, ...shownRun } };
        },
      };
    },
  };
  const app = express().disable('x-powered-by');
  app.use('/console', createConsoleRouter(ports));
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    async signIn() {
      const answer = await fetch(`${url}/console/login`, {
        method: 'POST',
        body: new URLSearchParams({ token: bearer }),
        redirect: 'manual',
      });
      return (answer.headers.get('set-cookie') ?? '').split(';')[0] as string;
    },
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}
