/** What a machine must be before its identity is touched (XC-035, XC-048): every reason at once, and nothing changed when there is one. */
import type { EnrolmentKind } from './order.ts';

/** As the machine says it of itself; texts of an unknown machine. */
export interface MachineFacts {
  /** `uname -sm`. */
  readonly system: string;
  /** Of the shell that carries out the steps. */
  readonly uid: string;
  /** `node --version`; empty for none. */
  readonly node: string;
  /** Path of systemctl; empty for none. */
  readonly systemctl: string;
  /** SHA-256 of the program of bcd there, hex; empty for none. */
  readonly sha256: string;
  readonly version: string;
  /** Whether an identity lies in its data folder. */
  readonly joined: boolean;
  /** Whether bcd.service there is of a bcd with another data folder. */
  readonly otherUnit: boolean;
}

/** The program of this release, as the worker has it. */
export interface ReleaseProgram {
  readonly version: string;
  readonly sha256: string;
}

const oldestNode = 20;

export function machineProblems(kind: EnrolmentKind, facts: MachineFacts, release: ReleaseProgram | null): string[] {
  const { system, uid, node, systemctl } = facts;
  return [
    ...(system.startsWith('Linux ') ? [] : [`it runs ${system === '' ? 'nothing we know' : shown(system)}, not Linux`]),
    ...(uid === '0' ? [] : [`the login has uid ${shown(uid)} there: log in as root, or with --sudo`]),
    ...(nodeMajor(node) >= oldestNode
      ? []
      : [`it has ${node === '' ? 'no node' : `node ${shown(node)}`}; bcd needs ${oldestNode} or later`]),
    ...(systemctl === '' ? ['it has no systemctl: bcd would not be kept running'] : []),
    ...(kind === 'enrol' ? standingProblems(facts) : []),
    ...programProblem(kind, facts, release),
  ];
}

/** A new machine has nothing that an enrolment would take the place of. */
const standingProblems = ({ joined, otherUnit }: MachineFacts): string[] => [
  ...(joined ? ['it has an identity already: enrol it again (nodes reenrol), or remove its data folder first'] : []),
  ...(otherUnit
    ? [
        'its bcd.service is of a bcd with another data folder (BETTER_COMPUTE_HOST_DATA says which one is used here): it may be a node already',
      ]
    : []),
];

const nodeMajor = (version: string): number => Number(/^v(\d{1,4})\./.exec(version)?.[1] ?? 0);

/** A node that serves is not upgraded by the way: that has its own workflow and its own signatures. */
function programProblem(kind: EnrolmentKind, { sha256, version }: MachineFacts, release: ReleaseProgram | null): string[] {
  if (release === null) return programless(kind, sha256);
  if (kind === 'enrol' || sha256 === release.sha256) return [];
  if (sha256 === '') return ['it has no bcd: it was not enrolled before, or its program was removed'];
  return [`it runs bcd ${shown(version)}, not this release (${release.version}): upgrade it first (daemon upgrade)`];
}

/** A worker without a program cannot tell which release a node runs. */
function programless(kind: EnrolmentKind, sha256: string): string[] {
  if (kind === 'reenrol') return ['the hosts worker has no bcd to compare its own with (BETTER_COMPUTE_HOST_BCD)'];
  return sha256 === '' ? ['it has no bcd, and the hosts worker has none to bring (BETTER_COMPUTE_HOST_BCD)'] : [];
}

/** Of the identity that serves there now. */
export interface LiveIdentity {
  /** null: none. */
  readonly nodeId: string | null;
}

/** undefined when the machine may become the node. */
export function identityProblem(kind: EnrolmentKind, nodeId: string, live: LiveIdentity): string | undefined {
  if (live.nodeId === null) return undefined;
  if (kind === 'enrol') return `the machine is node ${shown(live.nodeId)} already`;
  return live.nodeId === nodeId ? undefined : `the machine is node ${shown(live.nodeId)}, not ${nodeId}`;
}

const shown = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
