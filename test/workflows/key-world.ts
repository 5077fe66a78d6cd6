/**
 * A deployment for the activities of a key's exchange, in memory: one kind of key with the times it has, processes that take what
 * they are given unless they are told not to, real signed evidence. Fakes speak the ports; nothing of ours is replaced.
 */
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { activityInfo } from '@temporalio/activity';
import type { ExchangedKeyPort, KeyRotationControlPorts, KeyRotationPorts, KeyView } from '../../activities/key-rotation-ports.ts';
import type { OverrideRow } from '../../activities/rotation-ports.ts';
import { ControlError } from '../../domain/errors.ts';
import { judgeProcesses } from '../../domain/rotation/gates.ts';
import type { ExchangedKey, KeyStanding } from '../../domain/rotation/key-exchanges.ts';
import { minute } from '../../domain/time.ts';
import type { SignedEvidence } from '../../pki/audit/evidence.ts';
import { createKeyEvidence, parseKeyEvidence } from '../../pki/audit/key-evidence.ts';
import { type KeyEvidenceVerdict, verifyKeyEvidence } from '../../pki/audit/verify-key-evidence.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import type { PublishedQuorumPort } from '../../services/override-approval.ts';

export interface KeyTimes {
  /** From add to promote, and from stop to retirement. */
  readonly promoteMs: number;
  readonly retireMs: number;
}

const productionTimes: Readonly<Record<ExchangedKey, KeyTimes>> = Object.freeze({
  ca: { promoteMs: 0, retireMs: 24 * 60 * minute },
  gateway: { promoteMs: 0, retireMs: 0 },
  ticket: { promoteMs: 0, retireMs: 2 * minute },
  workload: { promoteMs: 5 * minute, retireMs: 16 * minute },
});

export class KeyWorld implements KeyRotationPorts, KeyRotationControlPorts {
  readonly kind: ExchangedKey;
  keys: KeyStanding[] = [{ id: 'key-1', state: 'signing', opensAt: null }];
  generation = 1;
  approvers: QuorumFields = noQuorum;
  readonly quorum: PublishedQuorumPort = { published: async () => this.approvers, trustDomain: () => 'fleet.example' };
  times: KeyTimes;
  /** Effects in order, to count what happened twice. */
  readonly effects: string[] = [];
  /** Called before each port call and after each effect; throws to make it fail. */
  before: (call: string) => void | Promise<void> = () => {};
  /** Processes that do not take what is new. */
  readonly stubborn = new Set<string>();
  readonly runs = new Map<string, string>();
  readonly overrideRows = new Map<string, OverrideRow[]>();
  readonly audited: { subject: string; actor: string; details: unknown }[] = [];
  readonly documents = new Map<string, SignedEvidence[]>();
  readonly #immediate: boolean;
  readonly #key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  #made = 1;
  #latest = 0;

  constructor(kind: ExchangedKey, processes: readonly string[] = ['api-1', 'worker-1']) {
    this.kind = kind;
    this.times = productionTimes[kind];
    this.#immediate = kind === 'ca' || kind === 'gateway';
    for (const id of processes) this.runs.set(id, this.digest);
  }

  get auditKey(): Uint8Array {
    return this.#key.publicKey.export({ format: 'der', type: 'spki' });
  }

  /** The server's clock where it skips; never backwards. */
  now = (): number => {
    this.#latest = Math.max(this.#latest, Date.now(), attemptTime());
    return this.#latest;
  };
  readonly clock = async (): Promise<number> => this.now();

  get digest(): string {
    return this.generation.toString(16).padStart(64, '0');
  }

  /** Every process that is not told otherwise runs what there is. */
  follow(): void {
    for (const id of this.runs.keys()) if (!this.stubborn.has(id)) this.runs.set(id, this.digest);
  }

  key = (): ExchangedKeyPort => ({
    read: async () => {
      await this.before('read');
      return this.#view();
    },
    add: async ({ from, refuse }) => {
      await this.before('add');
      if (this.#signing() !== from || this.keys.some(({ state }) => state === 'waiting')) return this.#view();
      await refuse();
      const id = `key-${(this.#made += 1)}`;
      if (this.#immediate) this.#stop();
      const next: KeyStanding = this.#immediate
        ? { id, state: 'signing', opensAt: null }
        : { id, state: 'waiting', opensAt: this.now() + this.times.promoteMs };
      return this.#did('add', this.kind === 'gateway' ? [next] : [...this.keys, next]);
    },
    promote: async ({ to }) => {
      await this.before('promote');
      if (this.#signing() === to) return this.#view();
      if (!this.keys.some(({ id }) => id === to)) throw new ControlError('INVALID_STATE', `key ${to} is gone`);
      this.#stop();
      return this.#did(
        'promote',
        this.keys.map((key) => (key.id === to ? { id: to, state: 'signing', opensAt: null } : key)),
      );
    },
    retire: async ({ from }) => {
      await this.before('retire');
      const key = this.keys.find(({ id }) => id === from);
      if (key === undefined) return this.#view();
      if (key.state === 'former' && (key.opensAt ?? 0) > this.now()) throw new ControlError('INVALID_STATE', 'retired too early');
      return this.#did(
        `retire ${from}`,
        this.keys.filter(({ id }) => id !== from),
      );
    },
    processes: async (view) => {
      const processes = [...this.runs].map(([id, runs]) => ({ id, kind: id.split('-')[0] ?? '', runs }));
      const facts = processes.map(({ id, kind, runs }) => ({
        id,
        kind,
        bundleDigest: runs,
        publishedVersionSeen: null,
        lastSeenAt: this.now(),
      }));
      const verdict = judgeProcesses(facts, { bundleDigest: view.bundle.digest, publishedVersion: 0, now: this.now() });
      // Gateways report the certificate they present, not the bundle.
      const presents = (runs: string): string => (runs === view.bundle.digest ? (this.#signing() ?? '') : 'an earlier one');
      return { verdict, processes: this.kind === 'gateway' ? processes.map((one) => ({ ...one, runs: presents(one.runs) })) : processes };
    },
  });

  readonly reads: KeyRotationPorts['reads'] = { overrides: async (rotationId) => this.overrideRows.get(rotationId) ?? [] };

  readonly overrides: KeyRotationControlPorts['overrides'] = {
    recordOverride: async ({ rotationId, override, details }) => {
      const rows = this.overrideRows.get(rotationId) ?? [];
      const known = rows.find((row) => row.kind === override.kind && row.subject === override.subject);
      if (known !== undefined) return known;
      const row = { ...override, at: this.now() };
      this.overrideRows.set(rotationId, [...rows, row]);
      this.audited.push({ subject: override.subject, actor: override.actor, details });
      return row;
    },
  };

  readonly evidence: KeyRotationPorts['evidence'] = {
    read: async (rotationId) => this.documents.get(rotationId) ?? [],
    unfinished: async (workflowId) =>
      [...this.documents.keys()].findLast((id) => {
        const stages = this.stagesOf(id);
        return id.startsWith(`${workflowId}/`) && stages.includes('add') && !stages.includes('confirm');
      }) ?? null,
    write: async (facts) => {
      await this.before(`evidence.${facts.stage}`);
      const rows = this.documents.get(facts.rotationId) ?? [];
      const signer = { sign: async (input: Uint8Array) => sign('sha256', input, { key: this.#key.privateKey, dsaEncoding: 'ieee-p1363' }) };
      this.documents.set(facts.rotationId, [...rows, await createKeyEvidence({ signer, facts, previous: rows.at(-1) ?? null })]);
    },
  };

  stagesOf(rotationId: string): string[] {
    return (this.documents.get(rotationId) ?? []).map(({ document }) => parseKeyEvidence(document).stage);
  }

  /** H-17: what a verifier says that has nothing but the pin. */
  verdictOf(rotationId: string): Pick<KeyEvidenceVerdict, 'problems' | 'outcome'> {
    const options = { auditKey: this.auditKey, pin: `sha256/${createHash('sha256').update(this.auditKey).digest('base64')}` };
    const { problems, outcome } = verifyKeyEvidence(this.documents.get(rotationId) ?? [], options);
    return { problems, outcome };
  }

  #signing(): string | null {
    return this.keys.find(({ state }) => state === 'signing')?.id ?? null;
  }

  #stop(): void {
    const opensAt = this.now() + this.times.retireMs;
    this.keys = this.keys.map((key) => (key.state === 'signing' ? { ...key, state: 'former', opensAt } : key));
  }

  async #did(effect: string, keys: KeyStanding[]): Promise<KeyView> {
    this.keys = keys;
    this.generation += 1;
    this.effects.push(effect);
    this.follow();
    await this.before(`${effect.split(' ')[0]}.done`);
    return this.#view();
  }

  #view(): KeyView {
    return { trustDomain: 'fleet.example', bundle: { digest: this.digest, generation: this.generation }, keys: [...this.keys] };
  }
}

function attemptTime(): number {
  try {
    return activityInfo().currentAttemptScheduledTimestampMs;
  } catch {
    return 0;
  }
}
