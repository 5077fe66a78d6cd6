/**
 * boot.prepareRamdisk and boot.cleanUp. Both may run twice: a command that a crash interrupted is run again from its start (its row of
 * the kind table says so), and ends as it would have ended, for entries are moved by pure steps that know what is there (entry-changes.ts).
 */
import type { Message } from '@bufbuild/protobuf';
import { isNodeId } from '../../../domain/commands/ids.ts';
import { ControlError } from '../../../domain/errors.ts';
import { problemOfKernelArgs } from '../../../domain/metal/cmdline.ts';
import { normaliseMac } from '../../../domain/metal/identity.ts';
import { site } from '../../../proto/index.ts';
import { type KindHandler, succeeded } from '../../kinds/handler.ts';
import { bindingOf } from '../../secrets/port.ts';
import { artefactName } from '../config.ts';
import type { BootArtefact } from './artefacts.ts';
import type { BootDesk } from './desk.ts';
import type { CleanUp, WantedEntry } from './entry-changes.ts';

/** @param desk null: the configuration of this site agent has no boot server */
export function createBootHandlers({
  desk,
}: {
  readonly desk: BootDesk | null;
}): Readonly<Record<'boot.prepareRamdisk' | 'boot.cleanUp', KindHandler>> {
  return Object.freeze({
    'boot.prepareRamdisk': {
      async run(payload: Message, { commandId, signal }) {
        const wanted = parsePrepare(payload as site.BootPrepareRamdisk, bindingOf(commandId).workflowId);
        const urls = await getDesk(desk).prepare(wanted.nodeId, wanted.entry, signal);
        return succeeded(site.BootPrepareRamdiskResultSchema, urls);
      },
    },
    'boot.cleanUp': {
      async run(payload: Message) {
        const { removed, scriptsServed, lastSeenAtMs, assertedAtMs, refusedAssertions } = await getDesk(desk).cleanUp(
          parseCleanUp(payload as site.BootCleanUp),
        );
        return succeeded(site.BootCleanUpResultSchema, {
          removed,
          scriptsServed,
          lastSeenAtMs: BigInt(lastSeenAtMs),
          assertedAtMs: BigInt(assertedAtMs),
          refusedAssertions,
        });
      },
    },
  });
}

function getDesk(desk: BootDesk | null): BootDesk {
  if (desk !== null) return desk;
  throw new ControlError('UNSUPPORTED', 'this site agent has no boot server', {
    details: { reason: 'no-boot-server', hint: 'site.boot in its configuration, or send the command to another agent of the site' },
  });
}

const most = { addresses: 64 };

/** @throws INVALID_INPUT naming everything that is wrong at once */
export function parsePrepare(
  payload: site.BootPrepareRamdisk,
  workflowId: string,
): { nodeId: string; entry: Omit<WantedEntry, 'tokenSha256'> } {
  const { nodeId, runId, entryId, bootNonce, discoveryTokenRef, expiresAtMs, kernelArgs } = payload;
  const { macAddresses, problems } = addressesOf(payload.macAddresses);
  if (macAddresses.length === 0 && problems.length === 0) problems.push('mac_addresses are none');
  const need = (good: boolean, what: string): void => void (good || problems.push(what));
  need(isNodeId(nodeId), 'node_id is no id of a node');
  need(isRunId(runId), 'run_id must be 12 lower-case hex digits');
  need(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(entryId), 'entry_id must be 1 to 64 letters, digits, dots, dashes and underscores');
  need(bootNonce.length === 16, `boot_nonce has ${bootNonce.length} bytes, not 16`);
  need(/^[a-z]+:\/\/[\x21-\x7e]{1,512}$/.test(discoveryTokenRef), 'discovery_token_ref names no secret');
  need(Number.isSafeInteger(Number(expiresAtMs)) && expiresAtMs > 0n, 'expires_at_ms is no instant');
  need(workflowId !== '', 'the command belongs to no workflow, so no secret is bound to it');
  const argsProblem = problemOfKernelArgs(kernelArgs);
  if (argsProblem !== null) problems.push(`kernel_args: ${argsProblem}`);
  const kernel = artefactOf('kernel', payload.kernel, problems);
  const initramfs = artefactOf('initramfs', payload.initramfs, problems);
  assertNone('boot.prepareRamdisk', problems);
  const entry = {
    entryId,
    runId,
    workflowId,
    macAddresses,
    bootNonce: Buffer.from(bootNonce).toString('hex'),
    tokenRef: discoveryTokenRef,
    expiresAtMs: Number(expiresAtMs),
    kernel,
    initramfs,
    kernelArgs,
  };
  return { nodeId, entry };
}

/** @throws INVALID_INPUT naming everything that is wrong at once */
export function parseCleanUp({ nodeId, runId, macAddresses: given, answer }: site.BootCleanUp): CleanUp {
  const { macAddresses, problems } = addressesOf(given);
  if (!isNodeId(nodeId)) problems.push('node_id is no id of a node');
  if (!isRunId(runId)) problems.push('run_id must be 12 lower-case hex digits');
  const told = answers[answer] ?? null;
  if (told === null) problems.push('answer must be LOCAL or HOLD');
  assertNone('boot.cleanUp', problems);
  return { nodeId, runId, macAddresses, answer: told ?? 'hold' };
}

const answers: Readonly<Partial<Record<site.BootAnswer, CleanUp['answer']>>> = Object.freeze({
  [site.BootAnswer.LOCAL]: 'local',
  [site.BootAnswer.HOLD]: 'hold',
});

const isRunId = (text: string): boolean => /^[0-9a-f]{12}$/.test(text);

/** Each once, in one spelling. */
function addressesOf(given: readonly string[]): { macAddresses: string[]; problems: string[] } {
  if (given.length > most.addresses)
    return { macAddresses: [], problems: [`mac_addresses are ${given.length}, at most ${most.addresses}`] };
  const read = given.map(normaliseMac);
  const wrong = given.filter((_text, at) => read[at] === null).map((text) => `"${text.replace(/[^\x20-\x7e]/g, '?').slice(0, 40)}"`);
  const problems = wrong.length === 0 ? [] : [`mac_addresses holds ${wrong.slice(0, 4).join(', ')}, which no interface has`];
  return { macAddresses: [...new Set(read.filter((mac) => mac !== null))], problems };
}

function artefactOf(what: string, artefact: site.BootArtefact | undefined, problems: string[]): BootArtefact {
  const { name = '', sha256 = '' } = artefact ?? {};
  if (!artefactName.test(name)) problems.push(`${what}.name is no name of a file in the boot server's folder`);
  if (!/^[0-9a-f]{64}$/.test(sha256)) problems.push(`${what}.sha256 must be 64 lower-case hex digits`);
  return { name, sha256 };
}

function assertNone(kind: string, problems: readonly string[]): void {
  if (problems.length === 0) return;
  throw new ControlError('INVALID_INPUT', `${kind}: ${problems.join('; ')}`, { details: { reason: 'boot-payload', problems } });
}
