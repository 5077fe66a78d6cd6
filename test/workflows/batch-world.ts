/**
 * Batches and their commands in memory, for the batch activities: the rules of the service are the ports' contract, and an approval is a
 * real signature over the batch's facts under one of the world's approver keys.
 */
import { createHash, generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto';
import type {
  BatchControlPorts,
  BatchCounts,
  BatchFacts,
  BatchFailure,
  BatchSigningPorts,
  WaveStep,
} from '../../activities/batch-ports.ts';
import { nextWave } from '../../domain/batch/waves.ts';
import { ControlError } from '../../domain/errors.ts';

type CommandStateName = 'held' | 'open' | 'done' | 'failed' | 'cancelled';

interface Command {
  state: CommandStateName;
  error: string;
}

interface Batch {
  facts: BatchFacts;
  commands: Command[];
  wave: number;
  maxFailures: number;
  healthy: boolean;
}

interface Approver {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

export interface BatchOptions {
  readonly size?: number;
  readonly required?: number;
  readonly wave?: number;
  readonly maxFailures?: number;
  readonly endsInMs?: number;
}

export class BatchWorld implements BatchControlPorts, BatchSigningPorts {
  readonly stored = new Map<string, Batch>();
  readonly approvers: Approver[] = Array.from({ length: 3 }, createApprover);
  /** Released commands in order, one entry for each time one went out. */
  readonly sent: string[] = [];
  readonly ranges: { from: number; to: number }[] = [];
  readonly evidences: string[] = [];
  readonly watched = new Set<string>();
  readonly closed = new Set<string>();
  /** Commands end by themselves as this says; null: they stay open. */
  ends: CommandStateName | null = 'done';
  reconciled = 0;
  before: (call: string) => void | Promise<void> = () => {};
  now = Date.now;

  add(batchId: string, { size = 10, required = 2, wave = size, maxFailures = 0, endsInMs = 3_600_000 }: BatchOptions = {}): string {
    const facts: BatchFacts = {
      batchId,
      state: required === 0 ? 'approved' : 'pending',
      endedBecause: '',
      reason: 'firmware',
      root: createHash('sha256').update(batchId).digest('hex'),
      size,
      required,
      approvals: [],
      notAfter: Date.now() + endsInMs,
      createdBy: 'ann',
      proposedBy: '',
    };
    const commands = Array.from({ length: size }, (): Command => ({ state: 'held', error: '' }));
    this.stored.set(batchId, { facts, commands, wave, maxFailures, healthy: true });
    return batchId;
  }

  /** What `better-compute batch sign` writes. */
  approval(by: number, batchId: string, other: Partial<BatchFacts> = {}): { kid: string; sig: string } {
    const { kid, privateKey } = this.approvers[by] as Approver;
    const signature = sign('sha256', this.#input({ ...this.#get(batchId).facts, ...other }), {
      key: privateKey,
      dsaEncoding: 'ieee-p1363',
    });
    return { kid, sig: signature.toString('base64url') };
  }

  commandsOf(batchId: string): readonly Command[] {
    return this.#get(batchId).commands;
  }

  change(batchId: string, facts: Partial<BatchFacts>): void {
    const batch = this.#get(batchId);
    batch.facts = { ...batch.facts, ...facts };
  }

  /** The api's route does this, and then nudges. */
  async approveByApi(by: number, batchId: string): Promise<void> {
    await this.batches.recordApproval({ batchId, ...this.approval(by, batchId) });
  }

  readonly batches: BatchControlPorts['batches'] = {
    read: async (batchId) => {
      await this.before('read');
      const { facts } = this.#get(batchId);
      return facts.state === 'pending' && this.now() > facts.notAfter ? { ...facts, state: 'expired' } : facts;
    },
    leaves: async (batchId, limit) =>
      this.#get(batchId)
        .commands.slice(0, limit)
        .map((_, index) => ({ index, subject: `node-${index}`, kind: 'node.reboot', payloadSha256: '' })),
    recordApproval: async ({ batchId, kid, sig }) => {
      await this.before('recordApproval');
      const batch = this.#get(batchId);
      const facts = await this.batches.read(batchId);
      const approver = this.approvers.find((one) => one.kid === kid);
      if (approver === undefined) throw refused('unknown-key', `key ${kid.slice(0, 16)} is not of the published set`);
      if (!verify('sha256', this.#input(facts), { key: approver.publicKey, dsaEncoding: 'ieee-p1363' }, Buffer.from(sig, 'base64url')))
        throw refused('bad-signature', `the signature of ${kid.slice(0, 16)} is not over this batch`);
      if (facts.approvals.some((one) => one.kid === kid)) return;
      if (facts.state !== 'pending')
        throw new ControlError('INVALID_STATE', `batch ${batchId} is ${facts.state}`, { details: { reason: 'not-pending' } });
      const approvals = [...facts.approvals, { kid, at: this.now() }];
      batch.facts = { ...facts, approvals, state: approvals.length >= facts.required ? 'approved' : 'pending' };
      await this.before('recordApproval.done');
    },
    cancel: async ({ batchId, as, reason, actor }) => {
      await this.before('cancel');
      const batch = this.#get(batchId);
      if (['expired', 'cancelled'].includes(batch.facts.state)) return;
      batch.facts = { ...batch.facts, state: 'cancelled', endedBecause: `${as} by ${actor}: ${reason}` };
      for (const command of batch.commands) if (command.state === 'held') command.state = 'cancelled';
    },
    counts: async (batchId) => this.#counts(batchId),
    failures: async (batchId, limit) =>
      this.#get(batchId)
        .commands.map((command, index): BatchFailure => ({ nodeId: `node-${index}`, commandId: `${batchId}/${index}`, ...command }))
        .filter(({ state }) => state === 'failed')
        .slice(0, limit),
    reconcile: async () => {
      this.reconciled += 1;
      return { expired: 1, commands: 2 };
    },
    close: async (batchId) => void this.closed.add(batchId),
    unfinished: async (limit) => [...this.stored.keys()].filter((id) => !this.closed.has(id) || this.#counts(id).held > 0).slice(0, limit),
  };

  readonly workflows: BatchControlPorts['workflows'] = { isRunning: async (batchId) => this.watched.has(batchId) };

  readonly release: BatchSigningPorts['release'] = {
    next: async (batchId) => {
      await this.before('next');
      return this.#next(this.#get(batchId));
    },
    release: async ({ batchId, from, to }) => {
      await this.before('release');
      const batch = this.#get(batchId);
      if (batch.facts.state !== 'approved') throw new ControlError('INVALID_STATE', `batch ${batchId} is not approved`);
      this.ranges.push({ from, to });
      let released = 0;
      for (let index = from; index < Math.min(to, batch.commands.length); index += 1) {
        const command = batch.commands[index];
        if (command?.state !== 'held') continue;
        command.state = this.ends ?? 'open';
        this.sent.push(`${batchId}/${index}`);
        released += 1;
      }
      await this.before('release.done');
      return { released };
    },
  };

  readonly evidence: BatchSigningPorts['evidence'] = {
    write: async (batchId) => {
      await this.before('evidence');
      if (!this.evidences.includes(batchId)) this.evidences.push(batchId);
    },
  };

  endAll(batchId: string, state: CommandStateName, error = ''): void {
    for (const command of this.#get(batchId).commands) if (command.state === 'open') Object.assign(command, { state, error });
  }

  setHealthy(batchId: string, healthy: boolean): void {
    this.#get(batchId).healthy = healthy;
  }

  #next({ facts, commands, wave, maxFailures, healthy }: Batch): WaveStep {
    if (facts.state !== 'approved') return { kind: 'not-approved' };
    const held = commands.findIndex(({ state }) => state === 'held');
    return nextWave(
      { size: wave, maxFailures, pauseMs: 0, healthGate: true },
      {
        total: commands.length,
        released: held < 0 ? commands.length : held,
        running: commands.filter(({ state }) => state === 'open').length,
        failed: commands.filter(({ state }) => state === 'failed').length,
        unhealthy: healthy ? 0 : 1,
        waveEndedAtMs: null,
        nowMs: this.now(),
      },
    );
  }

  #counts(batchId: string): BatchCounts {
    const { commands } = this.#get(batchId);
    const states: Record<string, number> = {};
    for (const { state } of commands) states[state] = (states[state] ?? 0) + 1;
    return { total: commands.length, held: states['held'] ?? 0, open: states['open'] ?? 0, states };
  }

  #get(batchId: string): Batch {
    const batch = this.stored.get(batchId);
    if (batch === undefined) throw new ControlError('NOT_FOUND', `no batch is called ${batchId}`, { details: { reason: 'unknown-batch' } });
    return batch;
  }

  #input = ({ batchId, root, size, notAfter }: BatchFacts): Buffer =>
    Buffer.from(JSON.stringify([batchId, root, size, notAfter, 'fleet.example']));
}

const refused = (reason: string, message: string): ControlError => new ControlError('BAD_SIGNATURE', message, { details: { reason } });

function createApprover(): Approver {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const kid = createHash('sha256')
    .update(publicKey.export({ format: 'der', type: 'spki' }))
    .digest('hex');
  return { kid, privateKey, publicKey };
}
