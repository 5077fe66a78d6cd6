/**
 * What a run's batch allows, leaf by leaf (BAT-032 to BAT-038, docs/adr/0007).
 *
 * A machine's own destructive commands are one leaf each without a payload: their payloads are made later, of what the machine has told.
 * Power actions and boot settings are known when the plan is made and come more than once; each is a leaf bound to its bytes, for every site
 * agent that may have to send it. So the approvers see how often a machine may be turned off and on, and one action more has no leaf (MT1).
 */
import { create, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { formatSubject, type SubjectRule } from '../../domain/batch/subjects.ts';
import type { CommandKindSpec } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import type { PlannedAction } from '../../domain/metal/plan.ts';
import type { Executor } from '../../drizzle/client.ts';
import { site } from '../../proto/index.ts';
import { unknownMachine } from './refusals.ts';
import type { BmcView, ScopeLeafInput } from './types.ts';

interface ScopeRow {
  readonly id: string;
  readonly address: string | null;
  readonly siteId: string;
  /** Active site agents of its site and tenant, connected or not: any of them may be the one that is there. */
  readonly agents: readonly string[];
}

const facts = {
  name: 'metal-scope-facts',
  text: `select n.id, n.site_id as "siteId", b.address,
           coalesce((select array_agg(a.id order by a.id) from nodes a
                     where a.role = 'site' and a.state = 'active' and a.site_id = n.site_id and a.tenant_id = n.tenant_id), '{}') as agents
         from nodes n left join machine_bmcs b on b.machine_id = n.id where n.id = any($1::text[]) order by n.id`,
};

/** Which kinds there are, and what they are: domain/commands/kinds.ts, or what a module adds to it. */
export type KindRegistry = Readonly<Record<string, CommandKindSpec>>;

/**
 * The leaves of destructive commands on machines (BAT-032): destructive kinds only, one leaf for each machine (BAT-033), for `bmc.*` one for
 * each site agent of the machine's site, since another agent takes over when one is away (BAT-034); every payload is open (BAT-038). Called
 * with four arguments, as BAT-032 names it.
 *
 * @throws NOT_FOUND for an unknown node; INVALID_INPUT for an unknown kind; INVALID_STATE for a machine without a controller, or a site
 *   without an agent, where a kind needs one
 */
export async function metalBatchScope(
  tx: Executor,
  registry: KindRegistry,
  ...[nodeIds, kinds]: readonly [nodeIds: readonly string[], kinds: readonly string[]]
): Promise<ScopeLeafInput[]> {
  const destructive = [...new Set(kinds)].map((kind) => ({ kind, spec: specOf(registry, kind) })).filter(({ spec }) => spec.destructive);
  if (destructive.length === 0) return [];
  const rows = await tx.query<ScopeRow>(facts, [[...new Set(nodeIds)]]);
  const found = new Set(rows.map(({ id }) => id));
  const missing = nodeIds.find((id) => !found.has(id));
  if (missing !== undefined) throw unknownMachine(missing);
  return rows.flatMap((row) =>
    destructive.flatMap(({ kind, spec }) => subjectsOf[spec.subject](row, kind).map((subject) => ({ subject, kind }))),
  );
}

function specOf(registry: KindRegistry, kind: string): CommandKindSpec {
  const spec = Object.hasOwn(registry, kind) ? registry[kind] : undefined;
  if (spec !== undefined) return spec;
  throw new ControlError('INVALID_INPUT', `there is no command kind ${kind}`, { details: { reason: 'unknown-kind', kind } });
}

const subjectsOf: Readonly<Record<SubjectRule, (row: ScopeRow, kind: string) => readonly string[]>> = Object.freeze({
  node: ({ id }) => [formatSubject({ form: 'node', nodeId: id })],
  target: ({ id }) => [formatSubject({ form: 'target', nodeId: id })],
  bmc: (row, kind) => {
    const { id, address, agents, siteId } = row;
    if (address === null) {
      throw new ControlError('INVALID_STATE', `node ${id} has no management controller on record: ${kind} cannot reach it`, {
        details: { reason: 'no-controller', machineId: id, kind },
      });
    }
    if (agents.length === 0) throw noAgent(siteId, id);
    return agents.map((agent) => formatSubject({ form: 'bmc', agent, address }));
  },
});

export const noAgent = (siteId: string, machineId: string): ControlError<'INVALID_STATE'> =>
  new ControlError(
    'INVALID_STATE',
    `site ${siteId} has no active site agent of the tenant of machine ${machineId}: nobody there can reach its controller`,
    { details: { reason: 'no-site-agent', siteId, machineId } },
  );

export interface PlannedTarget {
  readonly machineId: string;
  readonly runId: string;
  readonly bmc: Omit<BmcView, 'profile'>;
  /** Of the profile, for target `http`. */
  readonly httpUrl?: string | undefined;
}

const verbs: Readonly<Record<Extract<PlannedAction, { kind: 'bmc.power' }>['action'], site.PowerAction>> = Object.freeze({
  on: site.PowerAction.ON,
  'off-hard': site.PowerAction.OFF_HARD,
  'off-soft': site.PowerAction.OFF_SOFT,
  cycle: site.PowerAction.CYCLE,
});
const places: Readonly<Record<Extract<PlannedAction, { kind: 'bmc.boot' }>['target'], site.BootTarget>> = Object.freeze({
  network: site.BootTarget.NETWORK,
  http: site.BootTarget.HTTP,
  disk: site.BootTarget.DISK,
});

/** The payload of one planned action: the same bytes in its leaf and in its command, whichever agent sends it. References only. */
export function plannedPayload({ machineId, runId, bmc, httpUrl = '' }: PlannedTarget, action: PlannedAction): Any {
  const common = {
    address: bmc.address,
    nodeId: machineId,
    credentialRef: bmc.credentialRef,
    pinSha256: bmc.pinSha256 ?? '',
    systemId: bmc.systemId,
    runId,
    ordinal: action.ordinal,
  };
  if (action.kind === 'bmc.power')
    return anyPack(site.BmcPowerSchema, create(site.BmcPowerSchema, { ...common, action: verbs[action.action] }));
  const uefiHttpUrl = action.target === 'http' ? httpUrl : '';
  return anyPack(site.BmcBootSchema, create(site.BmcBootSchema, { ...common, target: places[action.target], uefiHttpUrl }));
}

/** As services/command-queue takes it: an encoded google.protobuf.Any. */
export const encodePlannedPayload = (target: PlannedTarget, action: PlannedAction): Uint8Array =>
  toBinary(AnySchema, plannedPayload(target, action));

/** One bound leaf for each planned action and each agent. */
export function plannedLeaves(target: PlannedTarget, actions: readonly PlannedAction[], agents: readonly string[]): ScopeLeafInput[] {
  return actions.flatMap((action) => {
    const { typeUrl, value } = plannedPayload(target, action);
    return agents.map((agent) => ({
      subject: formatSubject({ form: 'bmc', agent, address: target.bmc.address }),
      kind: action.kind,
      payload: { typeUrl, value },
    }));
  });
}
