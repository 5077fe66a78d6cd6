import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { isEnrolmentId } from '../../domain/enrolment/evidence.ts';
import { completesWithinMs } from '../../domain/enrolment/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { second, showInstant } from '../../domain/time.ts';
import { type ControlPlanePins, parsePinsFile } from '../../pki/enroll/index.ts';
import {
  armEnrolment,
  csrSha256Of,
  findEnrolment,
  getEnrolment,
  type PendingEnrolment,
  prepareEnrolment,
  removeEnrolment,
  samePins,
  spkiSha256Of,
} from '../enrol/file.ts';
import { askHealth } from '../enrol/health.ts';
import { kernelBootId } from '../state/boot-id.ts';
import { openPrivateFolder } from '../state/files.ts';
import { findIdentity } from '../state/identity.ts';
import { daemonVersion } from '../version.ts';
import { type CommonFlags, dataDirOption, examples, isJson, readPins } from './common.ts';
import type { BcdIo } from './io.ts';

interface OneFlags extends CommonFlags {
  readonly id: string;
}

/** What the control plane runs over SSH, in this order, before it restarts the daemon. Nothing of it touches the identity in force. */
export function registerEnrol(program: Command, io: BcdIo): void {
  const enrol = program
    .command('enrol')
    .description(
      'Make the next identity of this machine ready, as the control plane does it over SSH; the daemon takes it at its next start',
    );
  registerPrepare(enrol, io);
  registerCheck(enrol, io);
  registerArm(enrol, io);
  registerAbandon(enrol, io);
  registerShow(enrol, io);
  examples(enrol, [
    'bcd enrol prepare --id enr-5f2b81a09c44d1e7 --role node --pins /etc/better-compute/pins.json --json',
    'bcd enrol check --id enr-5f2b81a09c44d1e7 --pins /etc/better-compute/pins.json',
    'bcd enrol arm --id enr-5f2b81a09c44d1e7 --within 1800',
    'bcd enrol show',
  ]);
}

const one = (command: Command): Command =>
  command
    .addOption(dataDirOption())
    .addOption(new Option('--id <id>', 'of the enrolment, as the control plane names it').argParser(enrolmentId).makeOptionMandatory());

const pinsOption = (): Option =>
  new Option('--pins <file>', 'whom this machine is to believe, as daemon install-script wrote it').makeOptionMandatory();

function enrolmentId(value: string): string {
  if (isEnrolmentId(value)) return value;
  throw new InvalidArgumentError('It must have 8 to 64 letters, digits and hyphens.');
}

function seconds(value: string): number {
  if (/^\d{1,6}$/.test(value)) return Number(value);
  throw new InvalidArgumentError('It must be a number of seconds.');
}

const longestSeconds = completesWithinMs / second;

function secondsToArm(value: string): number {
  const within = /^\d{1,6}$/.test(value) ? Number(value) : 0;
  if (within >= 1 && within <= longestSeconds) return within;
  throw new InvalidArgumentError(`It must be a number of seconds from 1 to ${longestSeconds}.`);
}

const pinsOf = async ({ pins }: { readonly pins: string }): Promise<ControlPlanePins> => parsePinsFile(await readPins(pins));

interface Lines {
  /** For programs. */
  readonly facts: object;
  /** For people. */
  readonly text: string;
}

const show = (io: BcdIo, command: Command, { facts, text }: Lines): void => io.out(isJson(command) ? JSON.stringify(facts, null, 2) : text);

/** Who the machine is until then; an identity that does not read back is none, and an enrolment is what cures it. */
async function standing(dataDir: string): Promise<{ readonly nodeId: string | null; readonly generation: string | null }> {
  const identity = (await findIdentity(dataDir).catch(() => undefined))?.identity;
  return { nodeId: identity?.nodeId ?? null, generation: identity?.generation.toString() ?? null };
}

const standingText = ({ nodeId, generation }: Awaited<ReturnType<typeof standing>>): string =>
  nodeId === null ? 'this machine has no identity' : `this machine is node ${nodeId}, generation ${generation}`;

function registerPrepare(enrol: Command, io: BcdIo): void {
  const command = one(enrol.command('prepare'))
    .description('Make a key and a request beside the identity in force; the key stays on this machine')
    .addOption(new Option('--role <role>', 'what this machine is to be').choices(['node', 'site']).makeOptionMandatory())
    .addOption(pinsOption())
    .action(async (flags: OneFlags & { readonly role: 'node' | 'site'; readonly pins: string }) => {
      const { id, role, dataDir } = flags;
      const pending = await prepareEnrolment(dataDir, { id, role, pins: await pinsOf(flags), now: io.now() });
      const [csrSha256, spkiSha256] = [csrSha256Of(pending), spkiSha256Of(pending)];
      const now = await standing(dataDir);
      show(io, command, {
        facts: { id, version: daemonVersion, csrSha256, spkiSha256, ...now },
        text: `enrolment ${id} is ${pending.state}: request ${csrSha256}, of key ${spkiSha256}\n${standingText(now)}, and bcd ${daemonVersion}`,
      });
    });
}

function registerCheck(enrol: Command, io: BcdIo): void {
  const command = one(enrol.command('check'))
    .description('Ask the control plane of the pins for its signed word that it is there, for this enrolment')
    .addOption(pinsOption())
    .addOption(new Option('--wait <seconds>', 'how long to go on while it cannot be reached').default(0).argParser(seconds))
    .action(async (flags: OneFlags & { readonly pins: string; readonly wait: number }) => {
      const pending = await getEnrolment(flags.dataDir, flags.id);
      assertPins(pending, await pinsOf(flags), flags.pins);
      const health = await askHealth(pending, {
        host: { root: '/', readBootId: () => kernelBootId.read() },
        now: () => io.now(),
        patienceMs: flags.wait * second,
        random: Math.random,
        say: (line) => io.err(line),
        sleep: (ms) => sleep(ms),
      });
      show(io, command, {
        facts: { healthy: true, ...health },
        text: `the control plane of ${health.trustDomain} is there, and knows enrolment ${flags.id}; its clock is ${health.clockOffMs} ms ahead of this machine's`,
      });
    });
}

/** What is checked here is what the daemon will believe. */
function assertPins({ id, pins }: PendingEnrolment, given: ControlPlanePins, path: string): void {
  if (samePins(pins, given)) return;
  throw new ControlError('CONFLICT', `enrolment ${id} was prepared with other pins than those of ${path}`, {
    details: { reason: 'enrolment-differs', hint: `bcd enrol abandon --id ${id}, then prepare it again` },
  });
}

const deadlineOf = ({ deadlineMs }: PendingEnrolment): string | null => (deadlineMs === null ? null : showInstant(deadlineMs));

function registerArm(enrol: Command, io: BcdIo): void {
  const command = one(enrol.command('arm'))
    .description('From now on the next start of the daemon asks for the new identity; the one in force stays until it has it')
    .addOption(
      new Option('--within <seconds>', `how long it may ask, at most ${longestSeconds}`).argParser(secondsToArm).makeOptionMandatory(),
    )
    .action(async ({ id, within, dataDir }: OneFlags & { readonly within: number }) => {
      const armed = await armEnrolment(dataDir, { id, withinMs: within * second, now: io.now() });
      show(io, command, {
        facts: { id, state: armed.state, deadline: deadlineOf(armed) },
        text: `enrolment ${id} is armed until ${deadlineOf(armed)}: restart the daemon`,
      });
    });
}

function registerAbandon(enrol: Command, io: BcdIo): void {
  const command = one(enrol.command('abandon'))
    .description('Throw the prepared key away; the identity in force stays')
    .action(async ({ id, dataDir }: OneFlags) => {
      await openPrivateFolder(dataDir);
      const removed = await removeEnrolment(dataDir, id);
      show(io, command, {
        facts: { id, removed },
        text: removed ? `enrolment ${id} is abandoned` : `no enrolment ${id} is here`,
      });
    });
}

function registerShow(enrol: Command, io: BcdIo): void {
  const command = enrol
    .command('show')
    .description('Which enrolment is prepared or armed here, and who this machine is until then')
    .addOption(dataDirOption())
    .action(async ({ dataDir }: CommonFlags) => {
      const pending = await findEnrolment(dataDir);
      const enrolment = pending === undefined ? null : enrolmentFacts(pending);
      const now = await standing(dataDir);
      show(io, command, {
        facts: { enrolment, ...now, version: daemonVersion },
        text: `${enrolmentText(enrolment)}\n${standingText(now)}, and bcd ${daemonVersion}`,
      });
    });
}

export interface EnrolmentFacts {
  readonly id: string;
  readonly state: string;
  /** null while it is only prepared. */
  readonly deadline: string | null;
}

export const enrolmentFacts = (pending: PendingEnrolment): EnrolmentFacts => ({
  id: pending.id,
  state: pending.state,
  deadline: deadlineOf(pending),
});

const enrolmentText = (enrolment: EnrolmentFacts | null): string =>
  enrolment === null ? 'no enrolment is prepared here' : `enrolment ${standingOf(enrolment)}`;

export const standingOf = ({ id, state, deadline }: EnrolmentFacts): string =>
  `${id} is ${state}${deadline === null ? '' : ` until ${deadline}`}`;
