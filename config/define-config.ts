/**
 * A deployment in code: the options that its processes are made of, as the default export of one module (KEY-047).
 *
 *   export default defineConfig(() => ({ pki: { nodeCa, join, commandSigning }, tunnels, modules: [auditModule({ signer })] }));
 *
 * Options are judged once, whole, before anything starts: every problem is named, an unknown name with the nearest known one. The
 * processes of this project build the same options from the environment; the module is for deployments that compose their own.
 */
import { pathToFileURL } from 'node:url';
import { ControlError } from '../domain/errors.ts';
import type { Authority, CommandRoot } from '../pki/bundle/types.ts';
import type { TunnelsOptions } from '../pki/exec/index.ts';
import { parseSshCaLine } from '../pki/ssh/index.ts';
import type { WorkloadIssuer } from '../pki/workload/index.ts';
import { nearestName } from '../runtime/nearest.ts';
import { type ApproversOptions, quorumOfOptions } from '../services/approvers.ts';
import { type AllocationBindingCheck, pkiAllocationBindingCheck } from '../services/capacity/binding-check.ts';
import type { JoinCrypto } from '../services/join-crypto.ts';
import type { VpsModule } from '../services/vps-module.ts';

export interface PkiOptions {
  /** What the gateway role believes agents by, and whose rows of node_certs it follows (KEY-030). */
  readonly nodeCa: Authority;
  /** From pkiJoinCrypto (KEY-031). */
  readonly join: JoinCrypto;
  /** Certifies worker keys, which sign every command. Absent: no command can be enqueued, for there is no unsigned path (KEY-032). */
  readonly commandSigning?: CommandRoot | undefined;
  /** Lowest trust version to publish. */
  readonly trustVersion?: number;
  /** Who must sign destructive work, for settleAndPublish by quorumOfOptions. Absent: nobody (QUO-054). */
  readonly approvers?: ApproversOptions;
}

export interface CapacityOptions {
  /**
   * What shows that a node itself says that an allocation is bound, before its reservation counts (SIGN-014). Default:
   * pkiAllocationBindingCheck() where pki.commandSigning is set, else null (SIGN-013). null: nodes' words about allocations are not taken.
   */
  readonly attestedBindings?: AllocationBindingCheck | null;
}

export interface DeploymentModule {
  readonly name: string;
}

export interface DeploymentOptions {
  readonly pki: PkiOptions;
  /** From tunnelsOptions (KEY-033). */
  readonly tunnels?: TunnelsOptions;
  /** From createWorkloadIssuer. Absent: hosts that ask for a workload token are told that there are none (WID-004). */
  readonly workloadIdentity?: { readonly issuer: WorkloadIssuer };
  readonly capacity?: CapacityOptions;
  readonly modules?: readonly DeploymentModule[];
}

/** With every default in its place. */
export type InitialisedOptions = DeploymentOptions & { readonly capacity: Required<CapacityOptions> };

const marker = Symbol.for('better-compute.config');

export interface DeploymentConfig {
  readonly [marker]: () => DeploymentOptions | Promise<DeploymentOptions>;
}

/** Marks options as a deployment's. Nothing is evaluated before `initialise`. */
export const defineConfig = (options: () => DeploymentOptions | Promise<DeploymentOptions>): DeploymentConfig =>
  Object.freeze({ [marker]: options });

/**
 * Evaluates and judges the options.
 *
 * @throws INVALID_CONFIG when it is no config, or naming every option that is missing, unknown or of the wrong kind; what the options
 *   themselves throw
 */
export async function initialise(config: unknown): Promise<Readonly<InitialisedOptions>> {
  const evaluate = (config as Partial<DeploymentConfig> | null)?.[marker];
  if (typeof evaluate !== 'function') {
    throw new ControlError('INVALID_CONFIG', 'the default export is no deployment: export default defineConfig(() => ({ … }))', {
      details: { reason: 'no-config' },
    });
  }
  const options: unknown = await evaluate();
  const problems = problemsOf(options);
  if (problems.length === 0) return withDefaults(options as DeploymentOptions);
  throw new ControlError('INVALID_CONFIG', `the deployment's options are not valid: ${problems.join('; ')}`, {
    details: { reason: 'options', problems },
  });
}

/** SIGN-013. */
function withDefaults(options: DeploymentOptions): Readonly<InitialisedOptions> {
  const byKeys = options.pki.commandSigning === undefined ? null : pkiAllocationBindingCheck();
  const { attestedBindings = byKeys } = options.capacity ?? {};
  return Object.freeze({ ...options, capacity: Object.freeze({ attestedBindings }) });
}

/** Loads the module at `path` and initialises its default export. @throws INVALID_CONFIG when there is none */
export async function loadConfig(path: string): Promise<Readonly<InitialisedOptions>> {
  const loaded = (await import(pathToFileURL(path).href)) as { default?: unknown };
  return initialise(loaded.default);
}

type Fields = Readonly<Record<string, unknown>>;
const isObject = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value);

const known = Object.freeze({
  '': ['pki', 'tunnels', 'workloadIdentity', 'capacity', 'modules'],
  capacity: ['attestedBindings'],
  workloadIdentity: ['issuer'],
  pki: ['nodeCa', 'join', 'commandSigning', 'trustVersion', 'approvers'],
  'pki.approvers': ['keys', 'threshold', 'tiers', 'unbatchedDestructivePerHour', 'epoch', 'setSignatures'],
});

/** Everything at once. What is an object came from a function that checked it; here it is only told from a stranger. */
function problemsOf(options: unknown): string[] {
  if (!isObject(options)) return ['they are no object'];
  const { pki, tunnels, workloadIdentity, capacity, modules } = options;
  return [
    ...unknownNames('', options),
    ...(isObject(pki) ? pkiProblems(pki) : ['pki is missing']),
    ...(tunnels === undefined || (isObject(tunnels) && isObject(tunnels['issuer'])) ? [] : ['tunnels must come from tunnelsOptions']),
    ...workloadProblems(workloadIdentity),
    ...capacityProblems(capacity),
    ...moduleProblems(modules),
    ...sandboxProblems(modules, tunnels),
  ];
}

const isCa = (value: unknown): boolean => isObject(value) && isObject(value['certificate']);
const isJoin = (value: unknown): boolean => isObject(value) && isObject(value['joinSigner']) && isObject(value['nodeCa']);
const isVersion = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;

/** Option → what it must be, and how a wrong one is told. */
const pkiRows: readonly (readonly [string, (value: unknown) => boolean, string])[] = [
  ['nodeCa', isCa, 'must be the node CA of a bundle: without it no agent can be believed'],
  ['join', isJoin, 'must come from pkiJoinCrypto'],
  ['commandSigning', (value) => value === undefined || isCa(value), 'must be a command-signing root'],
  ['trustVersion', (value) => value === undefined || isVersion(value), 'must be a whole number'],
];

function pkiProblems(pki: Fields): string[] {
  const wrong = pkiRows.filter(([name, fits]) => !fits(pki[name]));
  const problems = [...unknownNames('pki', pki), ...wrong.map(([name, , must]) => `pki.${name} ${must}`), ...approverProblems(pki)];
  if (!isCa(pki['nodeCa']) || !isJoin(pki['join'])) return problems;
  const { nodeCa, join } = pki as unknown as PkiOptions;
  const same = Buffer.from(nodeCa.spki).equals(join.nodeCa.spki);
  return same ? problems : [...problems, 'pki.join certifies by another node CA than pki.nodeCa'];
}

/** QUO-047, QUO-059, QUO-060. */
function approverProblems({ approvers, join, commandSigning }: Fields): string[] {
  if (approvers === undefined) return [];
  if (!isObject(approvers) || !Array.isArray(approvers['keys'])) return ['pki.approvers must name its keys and threshold'];
  return [
    ...unknownNames('pki.approvers', approvers),
    ...(isJoin(join) ? [] : ['pki.approvers needs pki.join: approvals are judged for its trust domain']),
    ...(isCa(commandSigning) ? [] : ['pki.approvers needs pki.commandSigning: there is no unsigned command to approve']),
    ...problemOfSet(approvers as unknown as ApproversOptions),
  ];
}

function problemOfSet(approvers: ApproversOptions): string[] {
  try {
    quorumOfOptions(approvers);
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

function workloadProblems(workloadIdentity: unknown): string[] {
  if (workloadIdentity === undefined) return [];
  const given = isObject(workloadIdentity) ? workloadIdentity : {};
  const isIssuer = isObject(given['issuer']) && typeof given['issuer']['issueToken'] === 'function';
  return [...unknownNames('workloadIdentity', given), ...(isIssuer ? [] : ['workloadIdentity.issuer must come from createWorkloadIssuer'])];
}

function capacityProblems(capacity: unknown): string[] {
  if (capacity === undefined) return [];
  if (!isObject(capacity)) return ['capacity must be an object'];
  const check = capacity['attestedBindings'];
  const fits = check === undefined || check === null || typeof check === 'function';
  return [
    ...unknownNames('capacity', capacity),
    ...(fits ? [] : ['capacity.attestedBindings must come from pkiAllocationBindingCheck, or be null']),
  ];
}

function moduleProblems(modules: unknown): string[] {
  if (modules === undefined) return [];
  if (!Array.isArray(modules)) return ['modules must be a list'];
  const names = modules.map((module: unknown) => (isObject(module) && typeof module['name'] === 'string' ? module['name'] : null));
  const twice = names.find((name, at) => name !== null && names.indexOf(name) !== at);
  return [
    ...names.flatMap((name, at) => (name === null ? [`modules[${at}] is no module`] : [])),
    ...(twice === undefined ? [] : [`module ${twice} is there twice`]),
  ];
}

/** What guests trust is what signs for sandboxes.exec, and never what opens nodes (SBX-007, SBX-008). */
function sandboxProblems(modules: unknown, tunnels: unknown): string[] {
  const module = (Array.isArray(modules) ? modules : []).find((one: unknown) => isObject(one) && one['name'] === 'vps') as
    | Partial<VpsModule>
    | undefined;
  const line = module?.sandboxCa;
  if (typeof line !== 'string') return [];
  const { ssh, sandboxSsh } = (isObject(tunnels) ? tunnels : {}) as Partial<TunnelsOptions>;
  const same = (other: { readonly publicKey: string } | undefined): boolean =>
    other !== undefined && Buffer.compare(parseSshCaLine(line).blob, parseSshCaLine(other.publicKey).blob) === 0;
  if (same(ssh)) return ['vps.sandboxExec.caPublicKey is the break-glass CA: it must be the key of tunnels.sandboxSsh'];
  return same(sandboxSsh)
    ? []
    : ['vps.sandboxExec.caPublicKey must be the key of tunnels.sandboxSsh: guests would trust whom nobody signs with'];
}

function unknownNames(path: keyof typeof known, value: Fields): string[] {
  const prefix = path === '' ? '' : `${path}.`;
  return Object.keys(value)
    .filter((name) => !known[path].includes(name))
    .map((name) => {
      const nearest = nearestName(name, known[path]);
      return `${prefix}${name} is no option${nearest === null ? '' : `: did you mean ${prefix}${nearest}?`}`;
    });
}
