/** Nodes and their log in memory, for the command and revocation activities; the rules of the log are the ports' contract. */

import type { BatchProducerPorts, NewBatchOfCommands } from '../../activities/batch-producers.ts';
import type { CommandControlPorts, CommandSigningPorts, CommandView, WaitFor } from '../../activities/command-ports.ts';
import type { IdentityPorts } from '../../activities/identities.ts';
import type { SpecSigningPorts } from '../../activities/spec-signing.ts';
import type { SshSigningPorts } from '../../activities/ssh-signing.ts';
import type { CommandState } from '../../domain/commands/states.ts';
import { isFinished } from '../../domain/commands/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import type { DueCompletion, OpenWait } from '../../services/outbox.ts';
import type { OutboxPort } from '../../workers/relay.ts';

interface Entry extends CommandView {
  readonly deadline: number;
}

export class CommandWorld
  implements CommandControlPorts, CommandSigningPorts, BatchProducerPorts, IdentityPorts, SshSigningPorts, SpecSigningPorts
{
  readonly entries = new Map<string, Entry>();
  readonly waits = new Map<string, WaitFor>();
  readonly due = new Map<string, DueCompletion>();
  readonly nodeIds: string[];
  readonly ranges: number[] = [];
  readonly audited: unknown[] = [];
  openSessions = 1;
  revokes = 0;
  /** Called before each port call; throws to make it fail. */
  before: (call: string) => void = () => {};
  nextEnd = async (): Promise<void> => {};
  now = Date.now;

  constructor(nodes: number) {
    this.nodeIds = Array.from({ length: nodes }, (_, i) => `node-${String(i + 1).padStart(5, '0')}`);
  }

  readonly nodes: CommandSigningPorts['nodes'] = {
    page: async ({ after, limit }) => this.nodeIds.filter((id) => id > after).slice(0, limit),
  };

  approvers: QuorumFields = noQuorum;
  readonly batches = new Map<string, NewBatchOfCommands>();
  readonly batchOf = new Map<string, string>();
  tenants: readonly string[] = ['default'];
  readonly producers: BatchProducerPorts['producers'] = {
    published: async () => this.approvers,
    tenantsOf: async () => this.tenants,
    create: async (batch) => {
      const batchId = `b-${batch.idempotencyKey.slice(0, 12)}`;
      this.batches.set(batchId, batch);
      this.before('producers.create');
      return { batchId, held: true, notAfter: Date.now() + (batch.windowMs ?? 86_400_000) };
    },
  };
  readonly batchNodes: CommandSigningPorts['batchNodes'] = {
    page: async ({ batchId, after, limit }) =>
      (this.batches.get(batchId)?.leaves ?? [])
        .map(({ subject }) => subject)
        .filter((id) => id > after)
        .slice(0, limit),
  };

  readonly queue: CommandSigningPorts['queue'] = {
    enqueue: async (items) => {
      this.before('queue.enqueue');
      const unknown = items.find((item) => !this.nodeIds.includes(item.nodeId));
      if (unknown !== undefined) throw new ControlError('NOT_FOUND', `no node is called ${unknown.nodeId}`);
      const fresh = items.filter((item) => !this.entries.has(item.id));
      for (const item of fresh) if (item.batchId !== undefined) this.batchOf.set(item.id, item.batchId);
      for (const item of fresh)
        this.entries.set(item.id, { id: item.id, nodeId: item.nodeId, state: 'open', error: '', deadline: item.deadline });
      this.ranges.push(items.length);
      this.before('queue.enqueued');
      return { enqueued: fresh.length, existing: items.length - fresh.length };
    },
  };

  readonly clock: CommandSigningPorts['clock'] = async () => 1_000_000;
  readonly access: CommandSigningPorts['access'] = { bringUpToDate: async () => this.asked.push('logins') };
  readonly ssh: SshSigningPorts['ssh'] = {
    revoke: async ({ serial }) => {
      if (serial === '404') throw new ControlError('NOT_FOUND', `no certificate ${serial} was issued here`);
      this.revokes += 1;
      this.before('ssh.revoke');
      return { nodeId: 'node-00001', generation: 7 };
    },
  };
  readonly credentials: SpecSigningPorts['credentials'] = {
    set: async ({ nodeId, name, ref }) => {
      if (!this.nodeIds.includes(nodeId)) throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`);
      this.asked.push(`${name} of ${nodeId} from ${ref ?? 'nowhere'}`);
      this.before('credentials.set');
      return { generation: 8 };
    },
  };
  /** What the schedule asked for, in order. */
  readonly asked: string[] = [];
  readonly resign: CommandSigningPorts['resign'] = {
    signAgain: async ({ expiringBefore }) => {
      this.asked.push(`sign what ends before ${expiringBefore}`);
      return { commands: 2, specs: 1 };
    },
    stillSignedUnder: async () => 0,
  };

  readonly commands: CommandControlPorts['commands'] = {
    find: async (id) => this.entries.get(id),
    registerWait: async (wait) => {
      const entry = this.entries.get(wait.commandId);
      if (entry === undefined) return 'unknown';
      if (isFinished(entry.state)) return 'finished';
      this.waits.set(wait.commandId, wait);
      return 'waiting';
    },
    count: async (prefix) => {
      const all = this.#of(prefix);
      const states: Record<string, number> = {};
      for (const entry of all) states[entry.state] = (states[entry.state] ?? 0) + 1;
      return { total: all.length, open: all.filter((entry) => !isFinished(entry.state)).length, states };
    },
    failures: async (prefix, limit) =>
      this.#of(prefix)
        .filter((entry) => isFinished(entry.state) && entry.state !== 'done')
        .slice(0, limit),
    openOf: async (prefix, limit) =>
      this.#of(prefix)
        .filter((entry) => !isFinished(entry.state))
        .slice(0, limit),
    cancel: async (id) => this.end(id, 'cancelled', 'its workflow was cancelled'),
    expire: async () => 3,
    queueLostCompletions: async () => 1,
    prune: async () => 2,
  };

  readonly outbox: OutboxPort = {
    take: async (limit) => [...this.due.values()].slice(0, limit),
    finish: async (ids) => {
      for (const id of ids) {
        this.due.delete(id);
        this.waits.delete(id);
      }
    },
    backOff: async ({ commandId }) => this.before(`backOff ${commandId}`),
    openWaits: async ({ afterId, limit }) =>
      [...this.waits.values()]
        .filter((wait) => wait.commandId > afterId)
        .sort((a, b) => (a.commandId < b.commandId ? -1 : 1))
        .slice(0, limit)
        .map((wait): OpenWait => ({ ...wait, nodeId: '', deadline: 0, acked: false, connected: true })),
    sweep: async () => {
      const lost = [...this.waits.values()].filter(
        (wait) => isFinished(this.entries.get(wait.commandId)?.state ?? 'open') && !this.due.has(wait.commandId),
      );
      for (const wait of lost) this.due.set(wait.commandId, { ...wait, attempts: 0 });
      return lost.length;
    },
    find: (id) => this.commands.find(id),
  };

  readonly identities: IdentityPorts['identities'] = {
    revoke: async ({ nodeId }) => {
      if (!this.nodeIds.includes(nodeId)) throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`);
      this.revokes += 1;
      this.before('identities.revoke');
      return { certificates: 2 };
    },
    sessions: async () => Array.from({ length: this.openSessions }, () => ({ gatewayId: 'gateway-1' })),
    audit: async (event) => void this.audited.push(event),
  };

  /** The first end wins; who waits is told through the outbox, as one transaction does it. */
  end(id: string, state: CommandState, error = ''): void {
    const entry = this.entries.get(id);
    if (entry === undefined || isFinished(entry.state)) return;
    this.entries.set(id, { ...entry, state, error });
    const wait = this.waits.get(id);
    if (wait !== undefined) this.due.set(id, { ...wait, attempts: 0 });
  }

  endAll(state: CommandState, error = ''): void {
    for (const id of this.entries.keys()) this.end(id, state, error);
  }

  #of(prefix: string): Entry[] {
    return [...this.entries.values()].filter((entry) => entry.id.startsWith(`${prefix}/`));
  }
}
