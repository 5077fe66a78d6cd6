/**
 * A profile's own steps (BAT-036): what a run does for this profile beside what every run does, as data. One step is one command of a few
 * kinds, behind one of the run's own steps, with everything that it says known when the run is planned. So what it may destroy is a leaf
 * of the run's batch that is bound to its bytes, and approvers read the very call (docs/adr/0010).
 */
import { harmOf } from '../commands/harm.ts';
import { findCommandKind } from '../commands/kinds.ts';
import { isHeaderOfConnection, isSecretHeader } from '../commands/proxy-headers.ts';
import { problemsOfInvocation } from '../plugins/invocation.ts';
import { minute } from '../time.ts';
import { type ActName, undos } from './acts.ts';

/** A method of a plugin that the ramdisk was built with, or that the image brings (docs/plugins.md). */
export interface InvokeDoing {
  readonly plugin: string;
  readonly manifestSha256: string;
  readonly method: string;
  /** UTF-8. */
  readonly input: string;
  readonly harmless: boolean;
}

/** A request that the site's agent makes on the machine's behalf. */
export interface RequestDoing {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly url: string;
  /** A value, or a reference to a secret. */
  readonly headers: readonly { readonly name: string; readonly value?: string | undefined; readonly valueRef?: string | undefined }[];
  /** UTF-8; empty: none. */
  readonly body: string;
  /** SHA-256 of the server's SPKI; empty: the site agent's own trust. */
  readonly pinSha256: string;
  /** Statuses that are a success; empty: 200 to 299. */
  readonly expect: readonly number[];
}

/** One of them is given. */
export interface StepDoing {
  readonly 'driver.invoke'?: InvokeDoing | undefined;
  readonly 'site.httpProxy'?: RequestDoing | undefined;
  readonly 'service.restart'?: { readonly unit: string } | undefined;
  readonly 'node.reboot'?: { readonly reason: string } | undefined;
}
export type StepKind = keyof StepDoing;

export interface ProfileStep {
  readonly name: string;
  /** Of the run's own steps; it runs behind it. */
  readonly after: string;
  /** The kind of its command (BAT-036); absent: it has declared none, which is good for what does no harm alone (BAT-037). */
  readonly sends?: readonly string[] | undefined;
  /** From its beginning to its end; absent: what its kind may take. */
  readonly withinMs?: number | undefined;
  readonly do: StepDoing;
}

/** Who does it, when it stands behind a step of the run. */
type Doer = 'site' | 'ramdisk' | 'node';

/** Where the machine itself can be called: its ramdisk from its join to the jump, its system behind that. */
const machineBehind: Readonly<Record<string, Doer>> = Object.freeze({
  'ramdisk-join': 'ramdisk',
  diagnose: 'ramdisk',
  wipe: 'ramdisk',
  deploy: 'ramdisk',
  'clean-up': 'ramdisk',
  'provisioned-join': 'node',
});

const doersOf: Readonly<Record<StepKind, readonly Doer[]>> = Object.freeze({
  'driver.invoke': ['ramdisk', 'node'],
  'site.httpProxy': ['site'],
  'service.restart': ['node'],
  'node.reboot': ['node'],
});
export const stepKinds: readonly StepKind[] = Object.freeze(Object.keys(doersOf) as StepKind[]);
export const isStepKind = (kind: string): kind is StepKind => Object.hasOwn(doersOf, kind);

/** Of the only thing that it does; null: it does none, or several. */
export function stepKindOf({ do: doing }: Pick<ProfileStep, 'do'>): StepKind | null {
  const given = stepKinds.filter((kind) => doing[kind] !== undefined);
  return given.length === 1 ? (given[0] as StepKind) : null;
}

/** As the run carries it out. */
export interface OwnStep {
  /** In the profile's list, from 1. */
  readonly ordinal: number;
  readonly name: string;
  readonly after: string;
  readonly kind: StepKind;
  readonly act: ActName;
  readonly on: Doer;
  /** No approver is asked (domain/commands/harm.ts). */
  readonly harmless: boolean;
  /** It says that it sends its command, which has a leaf in the batch then. */
  readonly declared: boolean;
  /** It only looks: it is done again until it sees what it waits for, or its time is over. */
  readonly repeats: boolean;
  readonly deadlineMs: number;
  readonly do: StepDoing;
}

/** Beyond what the command may take itself, as for the run's own steps. */
const slackMs = 15 * minute;

/** In the profile's order, each with who does it. Only of a profile without problems. */
export const ownStepsOf = (profile: { readonly steps: readonly ProfileStep[] } | null): OwnStep[] =>
  (profile?.steps ?? []).flatMap((step, index) => ownStepOf(step, index + 1) ?? []);

function ownStepOf(step: ProfileStep, ordinal: number): OwnStep | null {
  const kind = stepKindOf(step);
  if (kind === null) return null;
  const { name, after, sends = [], withinMs, do: doing } = step;
  const on = doerOf(kind, after);
  if (on === null) return null;
  const harmless = isHarmless(kind, doing);
  return {
    ordinal,
    name,
    after,
    kind,
    act: actOfStep(kind, on, harmless),
    on,
    harmless,
    declared: sends.includes(kind),
    repeats: harmless && kind === 'site.httpProxy',
    deadlineMs: withinMs ?? (findCommandKind(kind)?.timeoutMs ?? 0) + slackMs,
    do: doing,
  };
}

/** By the very fields that the signed command will have. */
const isHarmless = (kind: StepKind, doing: StepDoing): boolean => harmOf(kind, doing[kind] ?? {}) === 'none';

function doerOf(kind: StepKind, after: string): Doer | null {
  if (kind === 'site.httpProxy') return 'site';
  const there = Object.hasOwn(machineBehind, after) ? machineBehind[after] : undefined;
  return there !== undefined && doersOf[kind].includes(there) ? there : null;
}

/** What destroys has an act of its own, by which the end of the run knows it (services/metal/finish-run.ts). */
function actOfStep(kind: StepKind, on: Doer, harmless: boolean): ActName {
  switch (kind) {
    case 'driver.invoke':
      return on === 'ramdisk' ? (harmless ? 'ask-ramdisk' : 'invoke-ramdisk') : harmless ? 'ask-node' : 'invoke-node';
    case 'site.httpProxy':
      return 'request';
    case 'service.restart':
      return 'restart';
    case 'node.reboot':
      return 'reboot';
  }
}

interface StepProblem {
  /** In the step. */
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Within a payload that approvers are shown (proto/bounds.ts, leafPayload). */
const longestText = 32 * 1024;

/** What is wrong with a profile's own steps; all of it. @param own names of the run's own steps */
export function problemsOfSteps(steps: readonly ProfileStep[], own: readonly string[]): StepProblem[] {
  // What is taken back has its place in the record by its name.
  const names = new Set<string>([...own, ...undos]);
  const sameBytes = new Map<string, string>();
  return steps.flatMap((step, index) => {
    const problems: StepProblem[] = [];
    if (names.has(step.name)) problems.push({ path: ['name'], message: `${step.name} is a step already` });
    names.add(step.name);
    if (!own.includes(step.after))
      problems.push({ path: ['after'], message: `there is no step ${step.after} of the run; there are ${own.join(', ')}` });
    const kind = stepKindOf(step);
    if (kind === null) problems.push({ path: ['do'], message: `must name one thing to do: one of ${stepKinds.join(', ')}` });
    else problems.push(...problemsOfPlace(step, kind, own), ...problemsOfSends(step, kind), ...problemsOfDoing(step.do));
    const twin = kind === null ? undefined : twinOf(step, { kind, sameBytes });
    if (twin !== undefined)
      problems.push({ path: ['do'], message: `is byte for byte what step ${twin} does, and an approval of it counts once on a machine` });
    return problems.map(({ path, message }) => ({ path: ['steps', index, ...path], message }));
  });
}

function problemsOfPlace({ after, do: doing }: ProfileStep, kind: StepKind, own: readonly string[]): StepProblem[] {
  if (!own.includes(after)) return [];
  const on = doerOf(kind, after);
  const places = Object.entries(machineBehind).flatMap(([place, doer]) => (doersOf[kind].includes(doer) ? [place] : []));
  if (on === null)
    return [{ path: ['after'], message: `nobody who runs ${kind} is there behind ${after}; it can stand behind ${places.join(', ')}` }];
  // The wipe is what proves that the disks are clean, and nothing may have written to them when the image is (deploy asks).
  if (after === 'wipe' && !isHarmless(kind, doing) && on === 'ramdisk')
    return [{ path: ['after'], message: `${kind} is not harmless and would undo what the wipe proves: put it behind diagnose or deploy` }];
  return [];
}

/**
 * Declared in vain, approvers would sign for what nothing does. Not declared, what may destroy is in no batch and is refused when it is sent
 * (BAT-037), and that may be behind the wipe: so it is refused here, before a machine is claimed.
 */
function problemsOfSends({ sends = [], do: doing }: ProfileStep, kind: StepKind): StepProblem[] {
  const inVain = sends.flatMap((one) => {
    if (findCommandKind(one) === undefined) return [{ path: ['sends'], message: `there is no command kind ${one}` }];
    return one === kind ? [] : [{ path: ['sends'], message: `declares ${one}, and the step sends ${kind}` }];
  });
  if (inVain.length > 0 || sends.includes(kind) || isHarmless(kind, doing)) return inVain;
  const message = `does not declare ${kind}, which may destroy: no approver is asked for it, and it would be refused when it is sent; write sends: [${kind}]`;
  return [{ path: ['sends'], message }];
}

/** Of two destructive steps with the same bytes the second would be refused by the machine. */
function twinOf(step: ProfileStep, { kind, sameBytes }: { kind: StepKind; sameBytes: Map<string, string> }): string | undefined {
  if (isHarmless(kind, step.do)) return undefined;
  const key = JSON.stringify([kind, doerOf(kind, step.after), step.do[kind]]);
  const twin = sameBytes.get(key);
  if (twin === undefined) sameBytes.set(key, step.name);
  return twin;
}

const problemsOfDoing = ({ 'driver.invoke': invoke, 'site.httpProxy': request }: StepDoing): StepProblem[] => [
  ...(invoke === undefined ? [] : problemsOfInvoke(invoke)),
  ...(request === undefined ? [] : problemsOfRequest(request)),
];

function problemsOfInvoke(invoke: InvokeDoing): StepProblem[] {
  const input = new TextEncoder().encode(invoke.input);
  const problems = problemsOfInvocation({ ...invoke, input }).map(({ field, message }) => ({
    path: ['do', 'driver.invoke', field],
    message,
  }));
  if (input.length <= longestText) return problems;
  return [...problems, { path: ['do', 'driver.invoke', 'input'], message: `has ${input.length} bytes, at most ${longestText}` }];
}

function problemsOfRequest({ method, body, url, pinSha256, headers }: RequestDoing): StepProblem[] {
  const problems: StepProblem[] = [];
  const at = (field: string, message: string): void => void problems.push({ path: ['do', 'site.httpProxy', field], message });
  if ((method === 'GET' || method === 'HEAD') && body !== '') at('body', `a ${method} has none`);
  if (new TextEncoder().encode(body).length > longestText) at('body', `has more than ${longestText} bytes`);
  if (pinSha256 !== '' && url.startsWith('http:')) at('pinSha256', 'is of no use without https');
  for (const [index, header] of headers.entries())
    for (const [isWrong, message] of headerRules)
      if (isWrong(header, { url, before: headers.slice(0, index) })) at('headers', `${header.name} ${message}`);
  return problems;
}

type Header = RequestDoing['headers'][number];
interface HeaderPlace {
  readonly url: string;
  readonly before: readonly Header[];
}

/** As the site agent judges them (daemon/site/proxy/headers.ts), before anything is planned. */
const headerRules: readonly (readonly [(header: Header, place: HeaderPlace) => boolean, string])[] = [
  [
    ({ value, valueRef }) => (value === undefined) === (valueRef === undefined),
    'has either a value or a valueRef, a reference to a secret',
  ],
  [({ name }) => isHeaderOfConnection(name), "is of the connection, which is not a step's to make"],
  [({ name, valueRef }) => isSecretHeader(name) && valueRef === undefined, 'holds a secret, which a profile names by valueRef'],
  [({ valueRef }, { url }) => valueRef !== undefined && url.startsWith('http:'), 'is a secret, which is not sent without TLS'],
  [({ name }, { before }) => before.some((other) => other.name.toLowerCase() === name.toLowerCase()), 'stands twice'],
];
