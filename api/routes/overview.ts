import { minute } from '../../domain/time.ts';
import type { OperatorPorts } from '../ports.ts';
import { type Route, route } from '../route.ts';
import { audit, auditPage, evidence, limited, rotations, stuck, trust } from '../schemas.ts';
import { type StuckItem, stuckApproverSet, stuckBoots, stuckCommand, stuckJoin, stuckNode, stuckSection } from '../stuck.ts';

/** A command that has waited for less is on its way. */
const waitingForMs = minute;
/** Each costs a question to Temporal. */
const unwatchedLookedAt = 50;
/** Of boot servers that cannot be told, each item counts its machines. */
const machinesLookedAt = 1_000;

export const overviewRoutes = (ports: OperatorPorts): Route[] => [
  route({
    method: 'get',
    path: '/v1/stuck',
    summary: 'List what waits, since when, on whom, and which command helps',
    query: limited,
    answer: stuck,
    handle: async ({ query: { limit } }) => ({ stuck: await everythingStuck(ports, limit) }),
  }),
  route({
    method: 'get',
    path: '/v1/trust',
    summary: 'Show the published trust bundle and how much of the fleet holds it',
    answer: trust,
    handle: () => ports.reads.getTrust(),
  }),
  route({
    method: 'get',
    path: '/v1/audit',
    summary: 'Read the audit trail in order',
    query: auditPage,
    answer: audit,
    handle: async ({ query }) => ({ events: await ports.reads.listAudit(query) }),
  }),
  route({
    method: 'get',
    path: '/v1/rotations',
    summary: 'List the rotations that left evidence, the newest first',
    query: limited,
    answer: rotations,
    handle: async ({ query }) => ({ rotations: await ports.reads.listRotations(query.limit) }),
  }),
  route({
    method: 'get',
    path: '/v1/rotations/:id/evidence',
    summary: 'Export the signed evidence of a rotation',
    answer: evidence,
    handle: async ({ params }) => ({
      auditKey: base64(ports.auditKey()),
      documents: (await ports.reads.getEvidence(params['id'] ?? '')).map(({ document, signature }) => ({
        document: base64(document),
        signature: base64(signature),
      })),
    }),
  }),
];

async function everythingStuck({ reads, joins, enrolments, workflows, now }: OperatorPorts, limit: number): Promise<StuckItem[]> {
  const atMost = Math.min(limit, unwatchedLookedAt);
  const unwatched = async () => workflows.listUnwatched(await reads.listOpenBatches(atMost));
  const uncarried = async () => workflows.listUnwatchedEnrolments(await enrolments.list({ nodeId: null, openOnly: true, limit: atMost }));
  const [fromTemporal, commands, nodes, sections, waiting, setLag, boots] = await Promise.all([
    Promise.all([workflows.listStuck(), unwatched(), uncarried()]).then((lists) => lists.flat(), temporalIsSilent),
    reads.listWaitingCommands({ olderThanMs: waitingForMs, limit }),
    reads.listAbsentNodes(limit),
    reads.listFailedSections(limit),
    joins.list({ state: 'waiting', limit }),
    reads.readSetLag(),
    reads.listUntoldBoots(machinesLookedAt),
  ]);
  const lagging = stuckApproverSet(setLag);
  const found = [...commands.map((command) => stuckCommand(command, now())), ...nodes.map(stuckNode), ...boots.map(stuckBoots)];
  return [...fromTemporal, ...(lagging === null ? [] : [lagging]), ...found, ...sections.map(stuckSection), ...waiting.map(stuckJoin)];
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

/** Half a list that says what it lacks is worth more than none. */
const temporalIsSilent = (error: unknown): StuckItem[] => [
  {
    kind: 'source',
    subject: 'temporal',
    since: null,
    waitsFor: `Temporal does not answer (${error instanceof Error ? error.message : String(error)}): workflows are missing from this list`,
    help: 'better-compute doctor',
  },
];
