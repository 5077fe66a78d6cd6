/**
 * What a daemon knows and may do, whatever session it is in: identity, trust, journal, executor. The same code runs in bcd, over
 * files, and in a simulated fleet, over memory.
 */

import { minute } from '../../domain/time.ts';
import { verifyIntent } from '../../pki/envelope/index.ts';
import type { HeldTrust } from '../../pki/trust/index.ts';
import { certificateId } from '../../pki/x509/index.ts';
import type { SignedTrustBundle } from '../../proto/index.ts';
import type { EventClient } from '../events/client.ts';
import type { KindHandlers } from '../kinds/handler.ts';
import type { HeldQuorum } from '../quorum/held-quorum.ts';
import { judgeQuorum, type QuorumRefusal } from '../quorum/judge.ts';
import { keepClaim, type QuorumStores, takeClaim } from '../quorum/quorum-state.ts';
import type { SecretClient } from '../secrets/client.ts';
import type { CrashHook } from '../state/crash-points.ts';
import type { Identity } from '../state/identity.ts';
import type { IdentityStore } from '../state/identity-store.ts';
import { isOrderFault, type Journal } from '../state/journal.ts';
import type { MarksStore } from '../state/marks.ts';
import type { SpecStore } from '../state/spec-store.ts';
import type { StatusSink } from '../state/status-file.ts';
import { heldTrustOf, judgeOfferedTrust, type QuorumRefused, type TrustOffer } from '../trust/offered-trust.ts';
import type { ServerClock } from '../trust/server-clock.ts';
import type { TunnelHost } from '../tunnel/host.ts';
import type { WorkloadTokenClient } from '../workload/token-client.ts';
import type { AdmissionState, AdmittedCommand } from './admission.ts';
import { Executor } from './executor.ts';
import type { AgentLog } from './log.ts';

export interface AgentPorts {
  readonly identity: IdentityStore;
  readonly marks: MarksStore;
  readonly spec: SpecStore;
  readonly journal: Journal;
  readonly quorum: QuorumStores;
  /** What the machine's owner pinned; the identity's own pin where this is null (PIN-005). */
  readonly approverSetPin: string | null;
  readonly clock: ServerClock;
  readonly handlers: KindHandlers;
  /** What handlers ask for secrets; absent where none does. */
  readonly secrets?: SecretClient;
  /** What the metadata service asks for tokens of instances; absent where nothing runs instances. */
  readonly workloadTokens?: WorkloadTokenClient;
  /** What opens tunnels; absent where the owner of the machine lets none in. */
  readonly tunnels?: TunnelHost | undefined;
  /** What tells of allocations; absent likewise. */
  readonly events?: EventClient;
  readonly status: StatusSink;
  readonly log: AgentLog;
  readonly crash: CrashHook;
  readonly minOverlapMs: number;
  /** The machine's own clock. */
  readonly wallMs: () => number;
  readonly onFinished: (id: string) => void;
  /** The control plane has the result, and the journal says so. */
  readonly onReceipted?: (id: string) => void;
  readonly onProgress: (report: { id: string; done: number; total: number; note: string }) => void;
  readonly onFatal: (error: unknown) => void;
}

const compactEveryMs = minute;

export class AgentState {
  readonly #ports: AgentPorts;
  readonly executor: Executor;
  #tookUp = false;
  #compactedAtSteadyMs = 0;
  #admitting: Promise<void> = Promise.resolve();
  #held: HeldTrust;

  constructor(ports: AgentPorts) {
    this.#ports = ports;
    this.#held = heldTrustOf(ports.identity.current.identity);
    this.executor = new Executor({
      journal: ports.journal,
      handlers: ports.handlers,
      now: () => ports.clock.now(),
      crash: ports.crash,
      log: ports.log,
      onFinished: (id) => this.#finished(id),
      onProgress: ports.onProgress,
      onFatal: (error) => this.#journalFailed(error),
    });
  }

  get identity(): Identity {
    return this.#ports.identity.current.identity;
  }
  get journal(): Journal {
    return this.#ports.journal;
  }
  get marks(): MarksStore {
    return this.#ports.marks;
  }
  get spec(): SpecStore {
    return this.#ports.spec;
  }
  get clock(): ServerClock {
    return this.#ports.clock;
  }
  get log(): AgentLog {
    return this.#ports.log;
  }
  get secrets(): SecretClient | undefined {
    return this.#ports.secrets;
  }
  get workloadTokens(): WorkloadTokenClient | undefined {
    return this.#ports.workloadTokens;
  }
  get tunnels(): TunnelHost | undefined {
    return this.#ports.tunnels;
  }
  get events(): EventClient | undefined {
    return this.#ports.events;
  }
  get capabilities(): readonly string[] {
    const offered = Object.entries(this.#ports.handlers).flatMap(([kind, { isOffered }]) => (isOffered === false ? [] : [kind]));
    return [...offered, ...(this.tunnels?.capabilities ?? [])].sort();
  }

  wallMs(): number {
    return this.#ports.wallMs();
  }

  crash(point: Parameters<CrashHook>[0]): void {
    this.#ports.crash(point);
  }

  held(): HeldTrust {
    return this.#held;
  }

  /** The approver set this daemon enforces (DMN-024). */
  get quorum(): HeldQuorum {
    return this.identity.quorum;
  }

  get approverSetPin(): string | null {
    return this.#ports.approverSetPin ?? this.identity.approverSetPin;
  }

  admission(upgradeRequired: boolean): AdmissionState {
    const { nodeId, trustDomain, generation, role } = this.identity;
    const held = this.#held;
    return {
      nodeId,
      trustDomain,
      generation,
      role,
      epoch: this.marks.current.epoch,
      upgradeRequired,
      findDigest: (id) => this.journal.find(id)?.digest,
      verify: ({ body, signature }, now) =>
        void verifyIntent({ purpose: 'command', body, signature, roots: held.roots, now, required: held.signaturesRequired }),
      judgeQuorum: (command, now) =>
        judgeQuorum(
          { held: this.quorum, pin: this.approverSetPin, ...this.#ports.quorum, trustDomain, wallMs: this.wallMs(), now },
          command,
        ),
    };
  }

  /**
   * Runs after every admission asked for before, of whichever session. Judging and journaling are one step: a command that comes
   * on two sessions at once, or comes again while it is held back, must not be new to both.
   */
  inAdmissionOrder(admit: () => Promise<void>): Promise<void> {
    const done = this.#admitting.then(admit);
    this.#admitting = done.catch(() => undefined);
    return done;
  }

  /**
   * Durable first, acknowledged then, started last (delivery rule 4).
   *
   * @returns why not, when what the approvers allow was used up since the command was judged; null when it is accepted
   */
  async accept(command: AdmittedCommand, acknowledge: () => void): Promise<QuorumRefusal | null> {
    const { id, kind, digest, seq, expiresAtMs, body, claim } = command;
    const accepted = { id, kind, digest, seq, expiresAtMs, body, ...(claim === null ? {} : { claim }) };
    const used = claim === null ? null : takeClaim(this.#ports.quorum, { claim, holder: { commandId: id, digest }, held: this.quorum });
    if (used !== null) return used;
    try {
      await this.journal.received(accepted);
      if (claim !== null) await keepClaim(this.#ports.quorum, claim);
      this.clock.proves(command.issuedAtMs);
      // Such a command may end this run, and with it what is only remembered: a gateway that then turned the time back could use
      // approvals that have ended.
      if (claim !== null) await this.keepTime();
    } catch (error) {
      this.#journalFailed(error);
      throw error;
    }
    this.log.info({ commandId: id, kind, seq: seq.toString() }, 'command accepted');
    this.#ports.status.update({ lastCommand: { id, kind, state: 'accepted', atMs: this.clock.now() } });
    acknowledge();
    this.executor.submit(accepted);
    return null;
  }

  async receipted(id: string): Promise<void> {
    if (await this.journal.receipted(id)) this.#ports.onReceipted?.(id);
  }

  /** Server time is known: what an earlier run left behind may go on. Once. */
  takeUp(): void {
    if (this.#tookUp) return;
    this.#tookUp = true;
    this.executor.recover();
  }

  /** Judges, and makes durable before it counts. */
  async offerTrust(signed: SignedTrustBundle): Promise<TrustOffer> {
    const { identity, minOverlapMs, status } = this.#ports;
    const { joinKey } = this.identity;
    const options = { joinKey, now: this.clock.now(), minOverlapMs, approverSetPin: this.approverSetPin };
    const offer = judgeOfferedTrust(this.#held, signed, options);
    if (offer.kind !== 'taken') return offer;
    const { bundle, signaturesRequired } = offer.held;
    await identity.update((current) => {
      const quorum = quorumAfter(current.identity.quorum, offer.held);
      return { ...current, identity: { ...current.identity, trust: bundle, signaturesRequired, quorum } };
    });
    this.#held = offer.held;
    if (offer.quorumRefused !== null) this.#quorumRefused(offer.quorumRefused);
    const roots = offer.held.roots.map(certificateId);
    this.log.info({ trustVersion: offer.held.version, roots }, 'trust bundle taken');
    status.update({ trustVersion: String(offer.held.version), commandRoots: roots });
    return offer;
  }

  /** DMN-025: this exact name, which operators look for. */
  #quorumRefused({ reason, detail }: QuorumRefused): void {
    this.log.warn({ event: 'trust.quorum-refused', reason, detail }, 'trust.quorum-refused');
    this.#ports.status.update({ lastRefusal: { atMs: this.clock.now(), reason: `quorum-${reason}`, detail } });
  }

  /** Said once in the log, kept for `bcd status`. */
  refused(reason: string, detail: string, commandId?: string): void {
    this.log.warn({ reason, detail, ...(commandId === undefined ? {} : { commandId }) }, 'refused');
    this.#ports.status.update({ lastRefusal: { atMs: this.clock.now(), reason, detail } });
  }

  failed(reason: string, detail: string): void {
    this.#ports.status.update({ lastFailure: { atMs: this.clock.now(), reason, detail } });
  }

  /**
   * Now and then: keep what is proven about the time, forget what may be forgotten. By the floor, not by the clock: a gateway that
   * claimed a later time would have commands forgotten that can still be delivered again.
   */
  async housekeeping(): Promise<void> {
    const now = this.clock.steadyMs();
    if (now - this.#compactedAtSteadyMs < compactEveryMs) return;
    this.#compactedAtSteadyMs = now;
    await this.keepTime();
    const { floorMs } = this.clock;
    await this.journal.compact(floorMs);
    await this.#ports.quorum.leaves.prune(floorMs);
  }

  /** What is proven about the time, durable: at the end of a run too, which a minute of it may not outlive. */
  keepTime(): Promise<void> {
    return this.marks.raise({ timeFloorMs: this.clock.floorMs });
  }

  #journalFailed(error: unknown): void {
    // Without a journal nothing can be promised, and a redial would not help. A step out of order wrote nothing and
    // concerns one command: it is said, and the others go on.
    if (!isOrderFault(error)) return this.#ports.onFatal(error);
    this.log.error({ err: error }, 'a command was to take a step that does not follow; it was left as it is');
    this.failed('journal-order', error.message);
  }

  #finished(id: string): void {
    const entry = this.journal.find(id);
    this.#ports.status.update({
      runningCommands: this.executor.running,
      lastCommand: { id, kind: entry?.kind ?? '', state: 'finished', atMs: this.clock.now() },
    });
    this.#ports.onFinished(id);
  }
}

/** A set that cannot be read stays so: no bundle tells which one it was, and taking the offered one would switch the old one off. */
const quorumAfter = (before: HeldQuorum, { quorum, approverSetEpoch }: HeldTrust): HeldQuorum =>
  before.kind === 'unreadable' ? before : { kind: 'held', fields: quorum, epoch: approverSetEpoch };
