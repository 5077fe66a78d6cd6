/**
 * The boot server behind its protocols: what a machine is told, whose key is asserted, how commands change it. HTTP asks here.
 *
 * The desk outlives the agent's sessions and its certificate: without an agent to sign and to ask for secrets it goes on answering,
 * and makes every machine with an entry wait.
 */
import { ControlError, codeOf, isControlError } from '../../../domain/errors.ts';
import { encodeBootCmdline } from '../../../domain/metal/cmdline.ts';
import { encodePinsFile } from '../../../pki/enroll/index.ts';
import { pinForOthers } from '../../quorum/held-quorum.ts';
import { reasonOf } from '../../reason.ts';
import type { Identity } from '../../state/identity.ts';
import { type Asked, answerFor, type BootAnswer } from './answers.ts';
import type { AssertRequest } from './assert-request.ts';
import { type AssertionVerdict, judgeAssertion, signAssertion, usedBy } from './assertion.ts';
import { type CleanUp, cleanedUp, preparedWith, seenOfRun, type WantedEntry } from './entry-changes.ts';
import { type BootEntry, standingEntry } from './machine-record.ts';
import type { BootPorts } from './ports.ts';
import { isWantedOnNetwork } from './proxy-answer.ts';
import { scriptFor, scriptPath } from './script.ts';
import { createTokens, getAgent, type Tokens, tokenDigest } from './tokens.ts';

export interface BootDesk {
  /** What the machine with this address is told. */
  answer(macAddress: string): BootAnswer;
  /** Whether the network has something for it, be it the word to wait; false for strangers and for who may boot its disk. */
  isWanted(macAddress: string): boolean;
  /** What iPXE of this address is to run. Never throws for a reason of the control plane: the machine waits then. */
  script(macAddress: string): Promise<string>;
  /** The checksums under which a file of this name is handed out: those of entries whose time is not over. */
  vouchedFor(name: string): string[];
  /**
   * The signed assertion, for the first key that comes with an entry's token; a second one is refused and said (M68).
   *
   * @throws PERMISSION_DENIED, REPLAYED; UNAVAILABLE while there is no agent to sign
   */
  assert(request: AssertRequest): Promise<Uint8Array>;
  /**
   * Puts an entry in place, durable; its files are there and its token is to be had.
   *
   * @throws what preparedWith, the files and the broker throw; CONFLICT (`mac-of-another`)
   */
  prepare(
    nodeId: string,
    wanted: Omit<WantedEntry, 'tokenSha256'>,
    signal: AbortSignal,
  ): Promise<{ scriptUrl: string; uefiHttpUrl: string }>;
  /** Takes a run's entries away, durable, and says what was seen. */
  cleanUp(clean: CleanUp): Promise<ReturnType<typeof seenOfRun>>;
}

export const uefiPath = (macAddress: string): string => `/uefi/${macAddress}/boot.efi`;

export function createBootDesk(ports: BootPorts): BootDesk {
  const { config, store, artefacts, now } = ports;
  const tokens = createTokens(ports.agent);
  const askedOf = (macAddress: string): Asked => ({
    record: store.findByMac(macAddress),
    recordsDamaged: store.damaged.size > 0,
    defaultAnswer: config.defaultAnswer,
  });
  const answer = (macAddress: string): BootAnswer => answerFor(askedOf(macAddress), now());
  return {
    answer,
    isWanted: (macAddress) => isWantedOnNetwork(askedOf(macAddress), now()),
    script: (macAddress) => scriptOf(ports, { told: answer(macAddress), macAddress, tokens }),
    vouchedFor(name) {
      const entries = [...store.all()].map(standingEntry).filter((entry) => entry !== undefined && now() < entry.expiresAtMs);
      const files = entries.flatMap((entry) => (entry === undefined ? [] : [entry.kernel, entry.initramfs]));
      return [...new Set(files.filter((file) => file.name === name).map(({ sha256 }) => sha256))];
    },
    assert: (request) => assertOnce(ports, request),
    async prepare(nodeId, wanted, signal) {
      const macAddress = wanted.macAddresses[0] ?? '';
      for (const { name, sha256 } of [wanted.kernel, wanted.initramfs]) await (await artefacts.open(name, [sha256])).file.close();
      const token = await tokens.read(wanted, signal);
      const entry = { ...wanted, tokenSha256: tokenDigest(token) };
      // A line that would not fit is refused now, not when the machine asks.
      cmdlineOf(ports, { nodeId, entry, token, macAddress });
      await store.change(nodeId, { taken: 'refuse', change: (record) => preparedWith(record, { nodeId, wanted: entry, now: now() }) });
      return { scriptUrl: ports.baseUrl() + scriptPath(macAddress), uefiHttpUrl: ports.baseUrl() + uefiPath(macAddress) };
    },
    async cleanUp(clean) {
      const record = await store.change(clean.nodeId, { taken: 'leave', change: (before) => cleanedUp(before, { clean, now: now() }) });
      return seenOfRun(record, clean.runId);
    },
  };
}

interface CmdlineFacts {
  readonly nodeId: string;
  readonly entry: WantedEntry;
  readonly token: Uint8Array;
  readonly macAddress: string;
}

function cmdlineOf(ports: BootPorts, { nodeId, entry, token, macAddress }: CmdlineFacts): string {
  const { identity } = getAgent(ports.agent).stored();
  const facts = {
    site: ports.baseUrl(),
    entryId: entry.entryId,
    token: Buffer.from(token).toString('base64url'),
    bootNonce: entry.bootNonce,
    nodeId,
    runId: entry.runId,
    gatewayUrl: new URL(identity.gatewayUrl).origin,
    pins: Buffer.from(pinsOf(identity)).toString('base64url'),
    macAddress,
  };
  return encodeBootCmdline(facts, `${ports.config.kernelArgs} ${entry.kernelArgs}`);
}

/** The machine believes whom this agent believes, its approvers too. Without the spaces that people like: a kernel's line is short. */
function pinsOf({ trustDomain, gatewayUrl, gatewayServerName, servingCaPin, joinKey, quorum, approverSetPin }: Identity): string {
  const pin = pinForOthers(quorum, approverSetPin);
  const pins = {
    trustDomain,
    gateway: gatewayUrl,
    servingCaPin,
    joinKey,
    ...(gatewayServerName === null ? {} : { serverName: gatewayServerName }),
    ...(pin === null ? {} : { approverSetSha256: pin }),
  };
  return JSON.stringify(JSON.parse(encodePinsFile(pins)));
}

async function scriptOf(
  ports: BootPorts,
  { told, macAddress, tokens }: { told: BootAnswer; macAddress: string; tokens: Tokens },
): Promise<string> {
  const { log, store } = ports;
  const options = { baseUrl: ports.baseUrl(), macAddress };
  if (told.kind !== 'ramdisk') {
    log.info({ macAddress, answer: told.kind, why: told.why }, 'a machine was told what to boot');
    return scriptFor(told, options);
  }
  const { nodeId, entry } = told;
  const facts = { nodeId, runId: entry.runId, entryId: entry.entryId, macAddress };
  try {
    await store
      .note({ nodeId, entryId: entry.entryId, atMs: ports.now(), what: 'script' })
      .catch((err: unknown) => log.error({ err, ...facts }, 'that a machine asked for its script could not be noted'));
    const cmdline = cmdlineOf(ports, { nodeId, entry, token: await tokens.of(entry), macAddress });
    log.info(facts, 'a machine was handed its script');
    return scriptFor(told, { ...options, cmdline });
  } catch (error) {
    log.warn({ err: error, ...facts }, 'a machine asked for its script and waits: what it needs cannot be had');
    return scriptFor(
      { kind: 'hold', why: `what it needs cannot be had (${isControlError(error) ? reasonOf(error) : codeOf(error)})` },
      options,
    );
  }
}

async function assertOnce(ports: BootPorts, request: AssertRequest): Promise<Uint8Array> {
  const agent = getAgent(ports.agent);
  const nodeId = ports.store.findByMac(request.macAddress)?.nodeId;
  let verdict: AssertionVerdict = judgeAssertion(undefined, request, ports.now());
  let entry: BootEntry | undefined;
  if (nodeId !== undefined) {
    // Judged in its turn: of two that come at once one is the first.
    const record = await ports.store.change(nodeId, {
      taken: 'leave',
      change: (before) => {
        if (before === undefined) throw new ControlError('INTERNAL', `the record of ${nodeId} is gone`);
        verdict = judgeAssertion(before, request, ports.now());
        return verdict.kind === 'first' ? usedBy(before, { entryId: verdict.entry.entryId, request, now: ports.now() }) : before;
      },
    });
    entry = standingEntry(record);
  }
  if (verdict.kind === 'refuse') return refused(ports, { verdict, request, nodeId: nodeId ?? '' });
  if (entry === undefined || nodeId === undefined) throw new ControlError('INTERNAL', 'an entry was used and is not there');
  ports.log.info({ nodeId, runId: entry.runId, entryId: entry.entryId, which: verdict.kind }, 'a ramdisk was asserted');
  return signAssertion(entry, { nodeId, agent: agent.stored(), now: ports.now() });
}

/** Said where operators look; the second key with one token is counted with the run, which asks at its end (boot.cleanUp). */
async function refused(
  ports: BootPorts,
  { verdict, request, nodeId }: { verdict: AssertionVerdict & { kind: 'refuse' }; request: AssertRequest; nodeId: string },
): Promise<never> {
  const { error, alarm } = verdict;
  ports.agent()?.refused(reasonOf(error), `${nodeId === '' ? request.macAddress : nodeId}: ${error.message}`);
  if (alarm === null) ports.log.warn({ nodeId, macAddress: request.macAddress, reason: reasonOf(error) }, 'an assertion was refused');
  else {
    const { macAddress, systemUuid, systemSerial, csrSha256 } = request;
    const facts = {
      nodeId,
      runId: alarm.runId,
      entryId: alarm.entryId,
      first: alarm.used,
      second: { macAddress, systemUuid, systemSerial, csrSha256 },
    };
    ports.log.error({ event: 'boot.second-assertion', ...facts }, 'boot.second-assertion: two keys came with the token of one boot entry');
    await ports.store.note({ nodeId, entryId: alarm.entryId, atMs: ports.now(), what: 'refused-assertion' });
  }
  throw error;
}
