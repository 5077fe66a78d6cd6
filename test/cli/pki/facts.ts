/** A deployment of given facts, behind the port that the database stands behind otherwise. */

import { toBinary } from '@bufbuild/protobuf';
import type { Deployment, ForcedStep, NodeTrust, Published } from '../../../cli/commands/pki/deployment.ts';
import type { FleetFacts, ProcessFact } from '../../../domain/rotation/gates.ts';
import { bundleDigest, type PkiBundle } from '../../../pki/bundle/index.ts';
import { type QuorumFields, trustBundleOf, trustContentDigest, trustContentOf } from '../../../pki/trust/index.ts';
import { TrustBundleSchema } from '../../../proto/index.ts';
import { now } from '../../pki/support.ts';

export interface Facts {
  published: Published | null;
  history: Map<string, number>;
  excluded: string[];
  processes: ProcessFact[];
  fleet: FleetFacts;
  nodes: NodeTrust[];
  recordsSets: boolean;
  introduced: QuorumFields | null;
  lastWorkerNotAfter: number | null;
  signedUnder: number;
  /** Of the database; null: as this host's. */
  clock: number | null;
  forced: ForcedStep[];
  asked: string[];
  opened: number;
  closed: number;
}

export const publishedOf = (bundle: PkiBundle, version: number): Published => ({
  version,
  digest: trustContentDigest(trustContentOf(bundle)),
  body: toBinary(TrustBundleSchema, trustBundleOf(bundle, version)),
});

export const processOf = (bundle: PkiBundle | null, change: Partial<ProcessFact> = {}): ProcessFact => ({
  id: 'api@host:1',
  kind: 'api',
  bundleDigest: bundle === null ? null : bundleDigest(bundle),
  publishedVersionSeen: null,
  lastSeenAt: now,
  ...change,
});

/** Everything open: published, run by every process, held by two connected nodes. */
export const openFacts = (bundle: PkiBundle, version: number): Facts => ({
  published: publishedOf(bundle, version),
  history: new Map(),
  excluded: [],
  processes: [processOf(bundle), processOf(null, { id: 'gw-1', kind: 'gateway', publishedVersionSeen: version })],
  fleet: { connected: 2, behind: 0, sample: [], knownNodes: 3, absentNodes: 1, lastPresenceWriteAt: now },
  nodes: [],
  recordsSets: true,
  introduced: null,
  lastWorkerNotAfter: null,
  signedUnder: 0,
  clock: null,
  forced: [],
  asked: [],
  opened: 0,
  closed: 0,
});

/** `hostClock` is the database's too, unless the facts say otherwise. */
export function deploymentOf(facts: Facts, hostClock: () => number): Deployment {
  const ask = <T>(name: string, value: T): Promise<T> => {
    facts.asked.push(name);
    return Promise.resolve(value);
  };
  facts.opened++;
  return {
    now: async () => facts.clock ?? hostClock(),
    published: () => ask('published', facts.published),
    earlierVersionOf: (digest) => ask('earlier', facts.history.get(digest) ?? null),
    excludedNodes: () => ask('excluded', facts.excluded),
    processes: () => ask('processes', facts.processes),
    fleet: (_version, excluded) => ask(`fleet without ${excluded.join() || 'nobody'}`, facts.fleet),
    connected: () => ask('connected', facts.nodes),
    recordsSets: async () => facts.recordsSets,
    introducedSet: async () => facts.introduced,
    lastWorkerNotAfter: () => ask('worker', facts.lastWorkerNotAfter),
    signedUnder: () => ask('signed', facts.signedUnder),
    recordForce: async (step) => void facts.forced.push(step),
    close: async () => void facts.closed++,
  };
}
