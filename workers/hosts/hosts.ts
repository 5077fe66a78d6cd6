/**
 * The steps of an enrolment on a machine (XC-039 to XC-044), over connections that each compare the host key first. The row that an operator's order
 * made says whom to dial and with what; a step that is not the row's turn is refused. The private half of the machine's key stays there.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { HostsPort } from '../../activities/host-ports.ts';
import { isNodeId } from '../../domain/commands/ids.ts';
import { isEnrolmentId } from '../../domain/enrolment/evidence.ts';
import { identityProblem, machineProblems } from '../../domain/enrolment/machine.ts';
import { completesWithinMs, isOver } from '../../domain/enrolment/states.ts';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { systemdUnit, unitName } from '../../runtime/systemd-unit.ts';
import { type Enrolment, getEnrolment, mintEnrolment, over } from '../../services/enrolments/index.ts';
import { assertDone, bcdAnswer, factsOf } from './answers.ts';
import { readHostCredential } from './credential.ts';
import type { HostLayout } from './layout.ts';
import type { BroughtProgram } from './program.ts';
import { lookScript, putScript, shellCommand, words } from './shell.ts';
import { dialHost, type HostConnection, type HostOutput, type RunInput } from './ssh.ts';

export interface HostsOptions {
  readonly db: Database;
  /** Folder of `file://` references; null: none. */
  readonly credentials: string | null;
  /** What new machines get; null: they have it already. */
  readonly program: BroughtProgram | null;
  readonly layout: HostLayout;
  /** Whom machines believe, as it is now: the content of a pins file, and its deployment. */
  readonly pins: () => Promise<{ readonly text: string; readonly trustDomain: string }>;
  readonly unit: { readonly releaseKeys: string | null; readonly websocketUrl: string | null };
}

interface OnHost {
  readonly enrolment: Enrolment;
  readonly sh: (script: string, input?: RunInput) => Promise<HostOutput>;
}

const uploadWithinMs = 180 * second;
const stepWithinMs = 90 * second;

export function createHosts(options: HostsOptions): HostsPort {
  const { db, layout, program } = options;
  const on = <T>(id: string, when: (enrolment: Enrolment) => void, step: (host: OnHost) => Promise<T>): Promise<T> =>
    onHost(options, { id, when, step });
  return {
    reach: (id) =>
      on(id, assertOpen, async (host) => {
        const facts = await look(host, options);
        return { system: facts.system, version: facts.version };
      }),

    install: (id) =>
      on(id, assertOpen, async (host) => {
        // Again, and not from what the step before saw: the machine may be another one by now.
        const facts = await look(host, options);
        const there = program === null || facts.sha256 === program.sha256;
        if (!there) {
          const input = { stdin: program.content, withinMs: uploadWithinMs };
          const script = putScript({ path: layout.program, mode: '0755', sha256: program.sha256 });
          assertDone(await host.sh(script, input), 'the upload of bcd');
        }
        await putFiles(host, options);
        return { program: there ? ('present' as const) : ('uploaded' as const) };
      }),

    prepare: (id) =>
      on(id, assertOpen, async (host) => {
        const { csrSha256, generation } = await prepare(host, options);
        return { csrSha256, generation };
      }),

    mint: (id) =>
      on(id, assertOpen, async (host) => {
        const { csrSha256 } = await prepare(host, options);
        const { clockOffMs } = await bcd(host, options, {
          step: 'check',
          flags: ['--pins', pinsPath(host.enrolment, layout)],
          answer: checked,
        });
        const minted = await mintEnrolment(db, { id, csrSha256: Buffer.from(csrSha256, 'hex'), now: await databaseNow(db) });
        return { deadlineMs: minted.deadline ?? 0, clockOffMs };
      }),

    start: (id) =>
      on(id, assertMinted, async (host) => {
        if (host.enrolment.state !== 'completed') await startArmed(host, options);
      }),

    tidy: (id) =>
      on(id, assertEnded, async (host) => {
        const { enrolment, sh } = host;
        const { removed } = await bcd(host, options, { step: 'abandon', flags: [], answer: z.object({ removed: z.boolean() }) });
        const detail = removed ? 'what was prepared on the machine is removed' : 'nothing was prepared on the machine';
        // What was not minted was not started either: whatever runs there is not this enrolment's to stop.
        if (enrolment.kind === 'reenrol' || enrolment.deadline === null) return { detail };
        const { joined } = factsOf(await sh(lookScript(layout)));
        if (joined) return { detail: `${detail}; it has an identity, so its daemon is left running` };
        await sh(`systemctl disable --now ${unitName} || true`);
        return { detail: `${detail}; its daemon is stopped and not started again` };
      }),
  };
}

interface Step<T> {
  readonly id: string;
  /** Whether it is its turn. @throws INVALID_STATE */
  readonly when: (enrolment: Enrolment) => void;
  readonly step: (host: OnHost) => Promise<T>;
}

async function onHost<T>({ db, credentials }: HostsOptions, { id, when, step }: Step<T>): Promise<T> {
  const enrolment = await getEnrolment(db, id);
  when(enrolment);
  const credential = await readHostCredential(credentials, enrolment.credential);
  const connection = await dialHost({ access: enrolment, hostKey: enrolment.hostKey, credential });
  try {
    return await step({ enrolment, sh: shellOf(connection, enrolment) });
  } finally {
    connection.close();
  }
}

const shellOf =
  (connection: HostConnection, { becomeRoot }: Enrolment): OnHost['sh'] =>
  (script, input = { withinMs: stepWithinMs }) =>
    connection.run(shellCommand(script, { becomeRoot }), input);

function assertOpen(enrolment: Enrolment): void {
  if (isOver(enrolment.state)) throw over(enrolment);
}

function assertMinted(enrolment: Enrolment): void {
  if (enrolment.state === 'minted' || enrolment.state === 'completed') return;
  throw isOver(enrolment.state)
    ? over(enrolment)
    : new ControlError('INVALID_STATE', `enrolment ${enrolment.id} is not minted yet`, { details: { reason: 'not-minted' } });
}

/** Nobody takes from a machine what it needs to complete. */
function assertEnded(enrolment: Enrolment): void {
  if (enrolment.state === 'failed' || enrolment.state === 'cancelled') return;
  throw new ControlError('INVALID_STATE', `enrolment ${enrolment.id} is ${enrolment.state}: there is nothing to tidy`, {
    details: { reason: 'enrolment-not-ended' },
  });
}

async function look({ enrolment, sh }: OnHost, { layout, program }: HostsOptions): Promise<ReturnType<typeof factsOf>> {
  const output = await sh(lookScript(layout));
  assertDone(output, 'looking at the machine');
  const facts = factsOf(output);
  const problems = machineProblems(enrolment.kind, facts, program);
  if (problems.length === 0) return facts;
  throw new ControlError('INVALID_STATE', `the machine cannot be enrolled: ${problems.join('; ')}`, {
    details: { reason: 'machine-unfit', problems },
  });
}

/** One that serves keeps its own pins until it has its next identity. */
const pinsPath = ({ kind }: Enrolment, { configDir }: HostLayout): string =>
  `${configDir}/${kind === 'enrol' ? 'pins.json' : 'enrolment-pins.json'}`;

async function putFiles({ enrolment, sh }: OnHost, { layout, pins, unit }: HostsOptions): Promise<void> {
  const { text, trustDomain } = await pins();
  const put = async (path: string, content: string): Promise<void> => {
    const sha256 = createHash('sha256').update(content).digest('hex');
    const input = { stdin: Buffer.from(content), withinMs: stepWithinMs };
    assertDone(await sh(putScript({ path, mode: '0644', sha256 }), input), `writing ${path}`);
  };
  await put(pinsPath(enrolment, layout), text);
  if (enrolment.kind === 'reenrol') return;
  const { program, dataDir, unitDir } = layout;
  await put(`${unitDir}/${unitName}`, systemdUnit({ program, dataDir, trustDomain, pins: pinsPath(enrolment, layout), ...unit }));
}

const digest = z.string().regex(/^[0-9a-f]{64}$/);
const prepared = z.object({
  csrSha256: digest,
  // It stands in errors, and those in terminals.
  nodeId: z.string().refine(isNodeId).nullable(),
  generation: z
    .string()
    .regex(/^\d{1,20}$/)
    .nullable(),
});
const checked = z.object({ healthy: z.literal(true), clockOffMs: z.number() });

const shown = z.object({ enrolment: z.object({ id: z.string().refine(isEnrolmentId) }).nullable() });

/** What an earlier enrolment left, where the machine could not be reached behind its end, is in nobody's way. */
async function clearLeftovers(host: OnHost, options: HostsOptions): Promise<void> {
  const enrolment = await findPrepared(host, options);
  if (enrolment === null || enrolment.id === host.enrolment.id) return;
  const before = await getEnrolment(options.db, enrolment.id).catch((error: unknown) => {
    if (codeOf(error) === 'NOT_FOUND') return undefined;
    throw error;
  });
  // One that is not ours, or is under way, is not ours to throw away: bcd says what is in the way.
  if (before === undefined || !isOver(before.state)) return;
  await bcd({ ...host, enrolment: before }, options, { step: 'abandon', flags: [], answer: z.unknown() });
}

/** null also for one that does not read back: the next that is prepared takes its place. */
async function findPrepared({ sh }: OnHost, { layout: { program, dataDir } }: HostsOptions): Promise<z.infer<typeof shown>['enrolment']> {
  const output = await sh(words(program, 'enrol', 'show', '--data-dir', dataDir, '--json'));
  try {
    return bcdAnswer(output, shown, 'bcd enrol show').enrolment;
  } catch (error) {
    if (codeOf(error) === 'DATA_CORRUPT') return null;
    throw error;
  }
}

async function prepare(host: OnHost, options: HostsOptions): Promise<z.infer<typeof prepared>> {
  const { enrolment } = host;
  await clearLeftovers(host, options);
  const flags = ['--role', enrolment.role, '--pins', pinsPath(enrolment, options.layout)];
  const answer = await bcd(host, options, { step: 'prepare', flags, answer: prepared });
  const problem = identityProblem(enrolment.kind, enrolment.nodeId, answer);
  if (problem === undefined) return answer;
  throw new ControlError('INVALID_STATE', problem, { details: { reason: 'other-node' } });
}

async function startArmed(host: OnHost, options: HostsOptions): Promise<void> {
  const { enrolment, sh } = host;
  const left = Math.floor(((enrolment.deadline ?? 0) - (await databaseNow(options.db))) / second);
  if (left <= 0) throw over({ ...enrolment, state: 'failed', endReason: 'its time is over' });
  // The database's clock may be another one than at the mint; no machine takes more than it may.
  const within = Math.min(left, completesWithinMs / second);
  await bcd(host, options, { step: 'arm', flags: ['--within', String(within)], answer: z.unknown() });
  const script = ['daemon-reload', `enable ${unitName}`, `restart ${unitName}`].map((verb) => `systemctl ${verb}`).join('\n');
  assertDone(await sh(script), 'the restart of bcd');
}

interface BcdStep<T> {
  readonly step: 'prepare' | 'check' | 'arm' | 'abandon';
  readonly flags: readonly string[];
  readonly answer: z.ZodType<T>;
}

async function bcd<T>({ enrolment, sh }: OnHost, { layout }: HostsOptions, { step, flags, answer }: BcdStep<T>): Promise<T> {
  const { program, dataDir } = layout;
  const command = words(program, 'enrol', step, '--id', enrolment.id, '--data-dir', dataDir, ...flags, '--json');
  return bcdAnswer(await sh(command), answer, `bcd enrol ${step}`);
}
