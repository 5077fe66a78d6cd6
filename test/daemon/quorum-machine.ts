/**
 * The two daemons that a scenario is played on: a member of the simulated fleet (over memory), and bcd itself (over files, restarted
 * after every reboot). Both dial a gateway that does what the scenario says.
 */

import type { AgentLog } from '../../daemon/agent/log.ts';
import { type DaemonConfig, parseDaemonConfig } from '../../daemon/config.ts';
import { memoryQuorumStores } from '../../daemon/quorum/quorum-state.ts';
import { startDaemon } from '../../daemon/run.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { day } from '../../domain/time.ts';
import { type Command, CommandRejectReason } from '../../proto/index.ts';
import { memoryMarks, startMember } from '../fakes/fleet.ts';
import { joinedNode, type NodeInit, signedTrust, type TestDeployment, type TrustInit } from '../harness/deployment.ts';
import { type FakeGateway, type FakeSession, startFakeGateway } from '../harness/fake-gateway.ts';
import { scratchFolder } from '../harness/scratch.ts';
import { quickBackoff } from './stage.ts';

export interface Verdict {
  /** accepted: acknowledged. */
  readonly kind: 'accepted' | 'rejected';
  readonly reject?: string;
  /** The word at the head of the detail. */
  readonly reason?: string;
  readonly detail?: string;
}

export interface QuorumMachine {
  /** Sends it in the session that is open, and says what came of it. */
  deliver(command: Command): Promise<Verdict>;
  /** In mid-session; resolves when the daemon has answered for it. @returns the version and set it reports then */
  offerTrust(init: TrustInit): Promise<Reported>;
  /** The next Welcome and everything after it tells the time with this much added. */
  moveServerTime(byMs: number): Promise<void>;
  restart(): Promise<void>;
  /** What the last Hello said of the approver set. */
  hello(): Omit<Reported, 'version'>;
  readonly log: readonly { readonly message: string; readonly facts: Readonly<Record<string, unknown>> }[];
  stop(): Promise<void>;
}

export interface Reported {
  readonly version: bigint;
  readonly epoch: bigint;
  /** Lower-case hex; empty for no set. */
  readonly digest: string;
}

export type MachineInit = Omit<NodeInit, 'gatewayUrl' | 'nodeId'>;

/** Starts a daemon against the gateway; a restart is a stop and another start. */
type StartDaemon = (gatewayUrl: string, log: AgentLog) => Promise<{ stop(): Promise<unknown> }>;

export async function startFleetMachine(deployment: TestDeployment, init: MachineInit = {}): Promise<QuorumMachine> {
  let kept: Awaited<ReturnType<typeof joinedNode>> | undefined;
  const [quorumStores, marks] = [memoryQuorumStores(), memoryMarks()];
  return startMachine(deployment, false, async (gatewayUrl, log) => {
    kept ??= await joinedNode(deployment, { ...init, gatewayUrl });
    const member = startMember({ identity: kept, limits: quickBackoff, log, quorumStores, marks });
    const stop = async (): Promise<void> => {
      kept = member.identity();
      await member.stop();
    };
    return { stop };
  });
}

export interface BcdInit extends MachineInit {
  readonly config?: Partial<DaemonConfig>;
  /** What becomes of its files between two starts. */
  readonly tamper?: (dataDir: string) => Promise<void>;
  readonly dataDir?: string;
}

export async function startBcdMachine(deployment: TestDeployment, { config, tamper, ...init }: BcdInit = {}): Promise<QuorumMachine> {
  const dataDir = init.dataDir ?? scratchFolder();
  let isJoined = false;
  return startMachine(deployment, true, async (gatewayUrl, log) => {
    if (!isJoined) await saveIdentity(dataDir, await joinedNode(deployment, { ...init, gatewayUrl }));
    isJoined = true;
    await tamper?.(dataDir);
    return startDaemon({
      dataDir,
      log,
      config: parseDaemonConfig('config', JSON.stringify(config ?? {})),
      simulateReboot: true,
      minOverlapMs: day,
      crash: neverCrash,
      random: () => 0,
      onFailed: (error) => log.error({ err: error }, 'failed'),
    });
  });
}

class Machine implements QuorumMachine {
  readonly log: { message: string; facts: Record<string, unknown> }[];
  readonly #deployment: TestDeployment;
  readonly #gateway: FakeGateway;
  readonly #clock: { aheadMs: number };
  readonly #redialsAfterReboot: boolean;
  readonly #start: () => ReturnType<StartDaemon>;
  #daemon: Awaited<ReturnType<StartDaemon>>;
  #session: FakeSession;
  readonly #ran = new Set<string>();
  #epoch = 1n;

  constructor(parts: {
    deployment: TestDeployment;
    gateway: FakeGateway;
    clock: { aheadMs: number };
    redialsAfterReboot: boolean;
    log: Machine['log'];
    start: () => ReturnType<StartDaemon>;
    daemon: Awaited<ReturnType<StartDaemon>>;
    session: FakeSession;
  }) {
    this.#deployment = parts.deployment;
    this.#gateway = parts.gateway;
    this.#clock = parts.clock;
    this.#redialsAfterReboot = parts.redialsAfterReboot;
    this.#start = parts.start;
    this.#daemon = parts.daemon;
    this.#session = parts.session;
    this.log = parts.log;
  }

  async deliver(command: Command): Promise<Verdict> {
    const session = this.#session;
    const before = session.all('commandReject').length + session.all('commandAck').length;
    session.send({ frame: { case: 'command', value: { ...command, epoch: this.#epoch } } });
    for (;;) {
      const answers = session.frames.filter(({ frame }) => frame.case === 'commandReject' || frame.case === 'commandAck');
      const answer = answers[before]?.frame;
      if (answer?.case === 'commandReject') {
        const { reason, detail } = answer.value;
        return { kind: 'rejected', reject: CommandRejectReason[reason], reason: detail.split(':')[0] ?? '', detail };
      }
      if (answer?.case === 'commandAck') {
        const isNew = !this.#ran.has(answer.value.commandId);
        this.#ran.add(answer.value.commandId);
        if (this.#redialsAfterReboot && isNew && isReboot(command)) await this.#redialed();
        return { kind: 'accepted' };
      }
      await session.nextFrame();
    }
  }

  async offerTrust(init: TrustInit): Promise<Reported> {
    const trust = await signedTrust(this.#deployment, init);
    const before = this.#session.all('status').length;
    this.#session.send({ frame: { case: 'welcome', value: { ...this.#welcome(), trust } } });
    while (this.#session.all('status').length === before) await this.#session.nextFrame();
    const { trustVersion = 0n, approverSetEpoch = 0n, approverSetSha256 = new Uint8Array() } = this.#session.all('status').at(-1) ?? {};
    return { version: trustVersion, epoch: approverSetEpoch, digest: Buffer.from(approverSetSha256).toString('hex') };
  }

  async moveServerTime(byMs: number): Promise<void> {
    this.#clock.aheadMs += byMs;
    await this.restart();
  }

  async restart(): Promise<void> {
    await this.#daemon.stop();
    this.#daemon = await this.#start();
    await this.#redialed();
  }

  hello(): Omit<Reported, 'version'> {
    const { approverSetEpoch = 0n, approverSetSha256 = new Uint8Array() } = this.#session.hello ?? {};
    return { epoch: approverSetEpoch, digest: Buffer.from(approverSetSha256).toString('hex') };
  }

  async stop(): Promise<void> {
    await this.#daemon.stop();
    await this.#gateway.close();
  }

  #welcome() {
    return { protocolVersion: 1, epoch: this.#epoch, serverTimeMs: BigInt(Date.now() + this.#clock.aheadMs) };
  }

  async #redialed(): Promise<void> {
    this.#session = await welcomed(this.#gateway);
    this.#epoch += 1n;
  }
}

/** Its first status has come: the next one answers something. */
async function welcomed(gateway: FakeGateway): Promise<FakeSession> {
  const session = await gateway.nextSession();
  await session.take('status');
  return session;
}

const isReboot = ({ body }: Command): boolean => Buffer.from(body).includes('node.reboot');

async function startMachine(deployment: TestDeployment, redialsAfterReboot: boolean, startDaemonAt: StartDaemon): Promise<QuorumMachine> {
  const clock = { aheadMs: 0 };
  const gateway = await startFakeGateway({ deployment, now: () => Date.now() + clock.aheadMs });
  const log: Machine['log'] = [];
  const write = (facts: object, message: string): void => void log.push({ message, facts: { ...facts } });
  const sink: AgentLog = { debug: write, info: write, warn: write, error: write };
  const start = () => startDaemonAt(gateway.url, sink);
  const daemon = await start();
  const session = await welcomed(gateway);
  return new Machine({ deployment, gateway, clock, redialsAfterReboot, log, start, daemon, session });
}
