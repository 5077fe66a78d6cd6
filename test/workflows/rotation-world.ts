/**
 * A deployment for the rotation's activities, in memory: the same pure rules (stages, gates), the same signed evidence, a fleet
 * whose nodes take what is published. Fakes speak the ports; nothing of ours is replaced.
 */
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { activityInfo } from '@temporalio/activity';
import type { OverrideRow, RootsView, RotationControlPorts, RotationSigningPorts } from '../../activities/rotation-ports.ts';
import { ControlError } from '../../domain/errors.ts';
import { type ProcessFact, productionTimes, type RotationTimes } from '../../domain/rotation/gates.ts';
import { abortRotation, addRoot, type CommandRoots, dropRoot, type Step, switchRoot } from '../../domain/rotation/stages.ts';
import { createStageEvidence, type SignedEvidence } from '../../pki/audit/evidence.ts';
import { noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import type { PublishedQuorumPort } from '../../services/override-approval.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

export interface WorldNode {
  trustVersion: number | null;
  connected: boolean;
  /** Takes what is published by itself. */
  obedient: boolean;
}

export class RotationWorld implements RotationControlPorts, RotationSigningPorts {
  roots$: CommandRoots = {
    signing: sha256('A'),
    roots: [{ id: sha256('A'), addedAt: 1 }],
    rotation: null,
    lastRotation: null,
    removed: [],
  };
  generation = 1;
  approvers: QuorumFields = noQuorum;
  readonly quorum: PublishedQuorumPort = { published: async () => this.approvers, trustDomain: () => 'fleet.example' };
  readonly nodes = new Map<string, WorldNode>();
  readonly processes$: ProcessFact[] = [];
  published: { version: number; digest: string } | null = null;
  readonly overrideRows = new Map<string, OverrideRow[]>();
  readonly documents = new Map<string, { stage: string; signed: SignedEvidence }[]>();
  readonly workerNotAfter = new Map<string, number>();
  signedUnder = new Map<string, number>();
  readonly audited: { action: string; subject: string; actor: string; details: unknown }[] = [];
  /** Effects in order, to count what happened twice. */
  readonly effects: string[] = [];
  /** Called before each port call; throws to make it fail. */
  before: (call: string) => void | Promise<void> = () => {};
  /** Processes and nodes follow the bundle at once. */
  follows = true;
  times: RotationTimes = productionTimes;
  readonly #key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  #newRoots = 0;
  #latest = 0;

  constructor(nodes: Readonly<Record<string, Partial<WorldNode>>> = { 'node-1': {}, 'node-2': {} }) {
    for (const [id, node] of Object.entries(nodes)) this.nodes.set(id, { trustVersion: 1, connected: true, obedient: true, ...node });
    this.workerNotAfter.set(this.roots$.signing, 0);
    this.publish();
  }

  get auditKey(): Uint8Array {
    return this.#key.publicKey.export({ format: 'der', type: 'spki' });
  }

  /** The server's clock where it skips; never backwards. */
  now = (): number => {
    this.#latest = Math.max(this.#latest, Date.now(), attemptTime());
    return this.#latest;
  };

  publish(): void {
    const digest = this.#trustDigest();
    if (this.published?.digest !== digest) this.published = { version: (this.published?.version ?? 0) + 1, digest };
    for (const node of this.nodes.values()) if (node.obedient && node.connected) node.trustVersion = this.published.version;
    this.processes$.length = 0;
    for (const kind of ['api', 'worker-signing']) {
      this.processes$.push({
        id: `${kind}-1`,
        kind,
        bundleDigest: this.#bundleDigest(),
        publishedVersionSeen: null,
        lastSeenAt: Number.MAX_SAFE_INTEGER,
      });
    }
  }

  readonly roots: RotationSigningPorts['roots'] = {
    read: async () => {
      await this.before('roots.read');
      return this.#view();
    },
    assertFresh: async () => this.before('roots.assertFresh'),
    add: async ({ rotationId, refuse }) => {
      await this.before('roots.add.swap');
      await refuse();
      return this.#step('add', () =>
        addRoot(this.roots$, { rotationId, newRoot: sha256(`root ${rotationId} ${this.#newRoots++}`), now: this.now() }),
      );
    },
    switch: ({ rotationId }) => this.#step('switch', () => switchRoot(this.roots$, { rotationId, now: this.now() })),
    drop: (input) => this.#step('drop', () => dropRoot(this.roots$, { ...input, now: this.now() })),
    abort: ({ rotationId }) => this.#step('abort', () => abortRotation(this.roots$, { rotationId, now: this.now() })),
  };

  readonly facts: RotationSigningPorts['facts'] = {
    publication: async () => this.published,
    now: async () => this.now(),
    processes: async () => this.processes$.map((process) => ({ ...process, lastSeenAt: Math.min(process.lastSeenAt, this.now()) })),
    fleet: async ({ version, excluded }) => {
      await this.before('facts.fleet');
      const counted = [...this.nodes].filter(([id, node]) => node.connected && !excluded.includes(id));
      const behind = counted.filter(([, node]) => (node.trustVersion ?? 0) < version);
      return {
        connected: counted.length,
        behind: behind.length,
        sample: behind.slice(0, 6).map(([nodeId, node]) => ({ nodeId, trustVersion: node.trustVersion, daemonVersion: '0.3.0' })),
        knownNodes: this.nodes.size,
        absentNodes: this.nodes.size - counted.length,
        lastPresenceWriteAt: counted.length === 0 ? null : this.now(),
      };
    },
    connectedVersions: async () =>
      [...this.nodes]
        .filter(([, node]) => node.connected)
        .map(([nodeId, node]) => ({ nodeId, trustVersion: node.trustVersion }))
        .sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1)),
    lastWorkerNotAfter: async (rootId) => this.workerNotAfter.get(rootId) ?? null,
  };

  readonly reads: RotationSigningPorts['reads'] = { overrides: async (rotationId) => this.overrideRows.get(rotationId) ?? [] };

  readonly overrides: RotationControlPorts['overrides'] = {
    nodeExists: async (nodeId) => this.nodes.has(nodeId),
    recordOverride: async ({ rotationId, override, details }) => {
      await this.before('overrides.record');
      const rows = this.overrideRows.get(rotationId) ?? [];
      const known = rows.find((row) => row.kind === override.kind && row.subject === override.subject);
      if (known !== undefined) return known;
      const row = { ...override, at: this.now() };
      this.overrideRows.set(rotationId, [...rows, row]);
      this.audited.push({ action: `rotation.${override.kind}`, subject: override.subject, actor: override.actor, details });
      return row;
    },
  };

  readonly resign: RotationSigningPorts['resign'] = {
    signAgain: async ({ underRoot, onProgress }) => {
      await this.before('resign.signAgain');
      const commands = this.signedUnder.get(underRoot ?? '') ?? 0;
      if (commands > 0) this.effects.push(`resign ${commands}`);
      this.signedUnder.delete(underRoot ?? '');
      onProgress?.(commands);
      return { commands, specs: 0 };
    },
    stillSignedUnder: async (rootId) => this.signedUnder.get(rootId) ?? 0,
  };

  readonly evidence: RotationSigningPorts['evidence'] = {
    read: async (rotationId) => (this.documents.get(rotationId) ?? []).map((row) => row.signed),
    write: async (facts) => {
      await this.before(`evidence.${facts.stage}`);
      const rows = this.documents.get(facts.rotationId) ?? [];
      const signer = { sign: async (input: Uint8Array) => sign('sha256', input, { key: this.#key.privateKey, dsaEncoding: 'ieee-p1363' }) };
      const signed = await createStageEvidence({ signer, facts, previous: rows.at(-1)?.signed ?? null });
      this.documents.set(facts.rotationId, [...rows, { stage: facts.stage, signed }]);
    },
  };

  stagesOf(rotationId: string): string[] {
    return (this.documents.get(rotationId) ?? []).map((row) => row.stage);
  }

  async #step(name: string, take: () => Step): Promise<RootsView> {
    await this.before(`roots.${name}`);
    const step = take();
    if (step.changed) {
      this.roots$ = step.state;
      this.generation += 1;
      this.effects.push(name);
      if (this.follows) this.publish();
    }
    await this.before(`roots.${name}.done`);
    return this.#view();
  }

  #view(): RootsView {
    return {
      roots: this.roots$,
      trustDomain: 'fleet.example',
      generation: this.generation,
      bundleDigest: this.#bundleDigest(),
      trustDigest: this.#trustDigest(),
    };
  }

  #bundleDigest = (): string => sha256(JSON.stringify([this.generation, this.roots$]));
  /** An aborted add is published again under a higher version, so its content counts as new here. */
  #trustDigest = (): string =>
    sha256(JSON.stringify([this.roots$.roots.map((root) => root.id).sort(), this.roots$.removed.map((root) => root.id)]));
}

/** A call that fails `times` times, as a lost connection does. */
export function failing(call: string, times: number): (name: string) => void {
  let left = times;
  return (name) => {
    if (name !== call || left === 0) return;
    left -= 1;
    throw new ControlError('UNAVAILABLE', `${call} is not reachable`);
  };
}

function attemptTime(): number {
  try {
    return activityInfo().currentAttemptScheduledTimestampMs;
  } catch {
    return 0;
  }
}
