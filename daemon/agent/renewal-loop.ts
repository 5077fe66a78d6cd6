/** Waits for the moment of renewal and renews; looks again at least each minute, so that a machine that slept misses nothing (C48). */
import { codeOf } from '../../domain/errors.ts';
import { minute, second, showInstant } from '../../domain/time.ts';
import { parseCertificate } from '../../pki/x509/index.ts';
import type { IdentityStore } from '../state/identity-store.ts';
import type { StatusSink } from '../state/status-file.ts';
import type { AttestNextKey } from '../tpm/attest.ts';
import { refusalFacts } from '../transport/grpc-status.ts';
import type { ClientIdentity } from '../transport/pinned-connection.ts';
import type { GatewayRoute } from '../transport/wire.ts';
import type { ServerClock } from '../trust/server-clock.ts';
import type { AgentLog } from './log.ts';
import { nextRenewalDelay, renewIdentity, renewsAt } from './renewal.ts';

export interface RenewalLoopPorts {
  readonly identity: IdentityStore;
  readonly clock: ServerClock;
  readonly clientIdentity: () => ClientIdentity;
  readonly route: GatewayRoute;
  readonly attest: AttestNextKey;
  readonly status: StatusSink;
  readonly log: AgentLog;
  readonly random: () => number;
  /** The new identity is durable. */
  readonly onRenewed: () => void;
  readonly lookEveryMs?: number;
  readonly callWithinMs?: number;
}

export class RenewalLoop {
  readonly #ports: RenewalLoopPorts;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #notBeforeSteadyMs = 0;
  #work: Promise<void> | undefined;
  readonly #stop = new AbortController();

  constructor(ports: RenewalLoopPorts) {
    this.#ports = ports;
  }

  start(): void {
    if (this.#stop.signal.aborted) return;
    const dueInMs = this.dueAtMs() - this.#ports.clock.now();
    const waitMs = Math.max(dueInMs, this.#notBeforeSteadyMs - this.#ports.clock.steadyMs(), 0);
    this.#timer = setTimeout(
      () => {
        this.#work = this.#look().finally(() => this.start());
      },
      Math.min(waitMs, this.#ports.lookEveryMs ?? minute),
    );
  }

  /** Gives up a renewal under way: it is asked for again after the next start. */
  async stop(): Promise<void> {
    this.#stop.abort();
    clearTimeout(this.#timer);
    await this.#work;
  }

  dueAtMs(): number {
    const { identity } = this.#ports.identity.current;
    return renewsAt(parseCertificate(identity.chain[0] as Uint8Array), identity.nodeId);
  }

  async #look(): Promise<void> {
    const { clock } = this.#ports;
    if (this.#stop.signal.aborted || clock.now() < this.dueAtMs() || clock.steadyMs() < this.#notBeforeSteadyMs) return;
    try {
      await this.renewNow();
      this.#failures = 0;
    } catch (error) {
      this.#failed(error);
    }
  }

  async renewNow(): Promise<void> {
    const { identity, clock, status, log } = this.#ports;
    const attest: AttestNextKey = (next) => this.#ports.attest(next, this.#stop.signal);
    const before = identity.current;
    const renewed = await renewIdentity(before, { clock, attest, call: (request) => this.#call(request) });
    await identity.update((current) => ({ key: renewed.key, identity: { ...current.identity, chain: renewed.identity.chain } }));
    const leaf = parseCertificate(renewed.identity.chain[0] as Uint8Array);
    log.info({ serial: leaf.serial, until: showInstant(leaf.notAfter) }, 'certificate renewed');
    status.update({ certificateSerial: leaf.serial, certificateNotAfterMs: leaf.notAfter, renewsAtMs: this.dueAtMs() });
    this.#ports.onRenewed();
  }

  #call(request: Uint8Array): Promise<Uint8Array> {
    const { identity, clock, clientIdentity, route, callWithinMs = 30 * second } = this.#ports;
    return route.renew(request, {
      identity: identity.current.identity,
      client: clientIdentity(),
      now: clock.now(),
      timeoutMs: callWithinMs,
      signal: this.#stop.signal,
    });
  }

  #failed(error: unknown): void {
    if (this.#stop.signal.aborted) return;
    const { log, status, clock, random } = this.#ports;
    const { reason, pushbackMs } = refusalFacts(error);
    const delayMs = nextRenewalDelay(this.#failures, pushbackMs, random);
    this.#failures += 1;
    this.#notBeforeSteadyMs = clock.steadyMs() + delayMs;
    const detail = error instanceof Error ? error.message : String(error);
    log.warn({ reason, code: codeOf(error), detail, delayMs }, 'certificate not renewed');
    status.update({ lastFailure: { atMs: clock.now(), reason: `renew-${reason === '' ? codeOf(error).toLowerCase() : reason}`, detail } });
  }
}
