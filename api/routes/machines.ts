/**
 * Machines and the runs on them. A machine is its tenant's: whoever acts for another one is answered as if it were not there. To start a run
 * takes a permission; what the run may destroy takes the approvers besides.
 */
import type { MachineOrder } from '../metal-ports.ts';
import * as schemas from '../metal-schemas.ts';
import type { OperatorPorts } from '../ports.ts';
import { type Principal, recordedActorOf } from '../principal.ts';
import { type Route, route } from '../route.ts';
import { started } from '../schemas.ts';

export const machineRoutes = (ports: OperatorPorts): Route[] => [
  ...reading(ports),
  ...adding(ports),
  ...beginning(ports),
  ...steering(ports),
  ...runRoutes(ports),
];

const reading = ({ machines }: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/machines',
    summary: 'List the machines of the tenants of the caller in order of id, with the step their run is at',
    permission: 'machines.read',
    query: schemas.machinePage,
    answer: schemas.machines,
    handle: async ({ query: { site, ...page }, principal }) => {
      const found = await machines.list(principal, { ...page, siteId: site });
      return { machines: found, next: found.length < page.limit ? null : (found.at(-1)?.id ?? null) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/machine-counts',
    summary: 'Count the machines of the tenants of the caller by site and state',
    permission: 'machines.read',
    answer: schemas.machineCounts,
    handle: async ({ principal }) => ({ counts: await machines.counts(principal) }),
  }),
  route({
    method: 'get',
    path: '/v1/machines/:id',
    summary: 'Show one machine: who it is, its disks, its runs, and how far what runs on it is',
    permission: 'machines.read',
    answer: schemas.machineDetail,
    handle: ({ params, principal }) => machines.get(principal, params['id'] ?? ''),
  }),
];

const adding = ({ machines }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/machines',
    summary: 'Add a machine: where its controller answers, and how it will be known',
    permission: 'machines.operate',
    body: schemas.addMachine,
    answer: schemas.addedMachines,
    status: 201,
    handle: ({ body, principal }) => machines.add(principal, { machine: body.machine, actor: recordedActorOf(principal, body.actor) }),
  }),
  route({
    method: 'post',
    path: '/v1/machines/import',
    summary: 'Take an inventory (CSV or YAML): every machine of it, or none, with line and field of everything that stands against it',
    permission: 'machines.operate',
    maxBytes: 20 * 2 ** 20,
    body: schemas.importMachines,
    answer: schemas.addedMachines,
    status: 201,
    handle: ({ body, principal }) => machines.import(principal, { ...body, actor: recordedActorOf(principal, body.actor) }),
  }),
];

/** Who and why, as it is recorded. */
const orderOf = (
  principal: Principal,
  { actor, ...order }: Omit<MachineOrder, 'actor'> & { readonly actor?: string | undefined },
): MachineOrder => ({
  ...order,
  actor: recordedActorOf(principal, actor),
});

const beginning = ({ machines }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/machines/:id/provision',
    summary: 'Provision a machine: starts the run that wipes it, writes the image of the profile and waits for its system to join',
    permission: 'machines.operate',
    body: schemas.provisionOrder,
    answer: started,
    status: 202,
    handle: ({ params, body, principal }) =>
      machines.begin(principal, params['id'] ?? '', { kind: 'provision', ...orderOf(principal, body) }),
  }),
  ...(
    [
      ['retire', 'Retire a machine: starts the run that ends its identity, wipes it and turns it off'],
      ['inspect', 'Inspect a machine: starts the run that reads its controller'],
      ['rotate-bmc', 'Change the password of a machine’s controller, in two phases'],
    ] as const
  ).map(([kind, summary]) =>
    route({
      method: 'post',
      path: `/v1/machines/:id/${kind}`,
      summary,
      permission: 'machines.operate',
      body: schemas.runOrder,
      answer: started,
      status: 202,
      handle: ({ params, body, principal }) => machines.begin(principal, params['id'] ?? '', { kind, ...orderOf(principal, body) }),
    }),
  ),
  route({
    method: 'post',
    path: '/v1/fleet/reimage',
    summary: 'Provision many machines anew: starts a window that slides over them, with limits by rack and site and rules that stop it',
    permission: 'machines.operate',
    maxBytes: 4 * 2 ** 20,
    body: schemas.reimageOrder,
    answer: started,
    status: 202,
    handle: ({ body, principal }) => machines.reimage(principal, { ...body, actor: recordedActorOf(principal, body.actor) }),
  }),
];

/** What is said to the run of a machine. */
const runWords = [
  {
    what: 'cancel',
    body: schemas.runOrder,
    summary: 'Cancel the run of a machine: what can be taken back is, and the run ends untouched, clean, or dirty and in quarantine',
  },
  { what: 'give-up', body: schemas.runOrder, summary: 'Give up the run of a machine where it stands, in any state' },
  { what: 'override', body: schemas.overrideWords, summary: 'Say “I have checked” of the step that a run waits in' },
] as const;

/** What is said of a machine on which nothing runs. */
const machineWords = [
  { what: 'release', summary: 'Say “I have checked” of a machine in quarantine: it is available again' },
  {
    what: 'forget',
    summary: 'Delete a machine; one whose disks may hold somebody’s data leaves a tombstone that keeps its hardware out',
  },
  { what: 'readmit', summary: 'Lift the tombstone of a deleted machine: its hardware may come back under another id' },
] as const;

const steering = ({ machines }: OperatorPorts): Route[] => [
  ...runWords.map(({ what, body, summary }) =>
    route({
      method: 'post',
      path: `/v1/machines/:id/${what}`,
      summary,
      permission: 'machines.operate',
      body,
      answer: schemas.steered,
      handle: ({ params, body: order, principal }) => machines.steer(principal, params['id'] ?? '', { what, ...orderOf(principal, order) }),
    }),
  ),
  ...machineWords.map(({ what, summary }) =>
    route({
      method: 'post',
      path: `/v1/machines/:id/${what}`,
      summary,
      permission: 'machines.operate',
      body: schemas.runOrder,
      answer: schemas.changedMachine,
      handle: ({ params, body, principal }) => machines.change(principal, params['id'] ?? '', { what, ...orderOf(principal, body) }),
    }),
  ),
];

const runRoutes = ({ machines }: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/runs',
    summary: 'List the runs on machines, the newest first',
    permission: 'machines.read',
    query: schemas.runPage,
    answer: schemas.runs,
    handle: async ({ query: { machine, ...page }, principal }) => ({
      runs: await machines.runs(principal, { ...page, machineId: machine }),
    }),
  }),
  route({
    method: 'get',
    path: '/v1/runs/:id',
    summary: 'Show a run: its steps in time, the commands it sent with what was answered, its evidence',
    permission: 'machines.read',
    answer: schemas.run,
    handle: ({ params, principal }) => machines.run(principal, params['id'] ?? ''),
  }),
  route({
    method: 'get',
    path: '/v1/runs/:id/evidence',
    summary: 'Export what ramdisks signed about the disks that they erased and wrote in a run',
    permission: 'machines.read',
    answer: schemas.runEvidence,
    handle: ({ params, principal }) => machines.evidence(principal, params['id'] ?? ''),
  }),
];
