/** The figures of a demonstration, as the last line of `--once` carries them. */

import type { CheckedEvidence } from './evidence.ts';
import type { TrafficCount } from './traffic.ts';
import type { Watched } from './watch-rotation.ts';

export interface Summary {
  readonly rotationId: string;
  readonly outcome: 'dropped' | 'aborted';
  readonly nodes: number;
  readonly trustVersions: { readonly before: number; readonly after: number };
  /** Ids of the signing root. */
  readonly roots: { readonly before: string; readonly after: string };
  readonly seconds: number;
  readonly secondsPerPhase: Readonly<Record<string, number>>;
  readonly commands: {
    readonly workflows: number;
    readonly run: number;
    readonly rejected: number;
    readonly failed: number;
    readonly failures: readonly string[];
  };
  readonly historyEvents: number;
  readonly evidence: { readonly file: string; readonly documents: number; readonly valid: boolean };
}

export interface SummaryInput {
  readonly nodes: number;
  readonly before: { readonly version: number };
  readonly after: { readonly version: number };
  readonly watched: Watched;
  readonly traffic: TrafficCount;
  readonly evidence: CheckedEvidence;
  readonly historyEvents: number;
}

export function createSummary({
  nodes,
  before,
  after,
  watched: { run, secondsPerPhase },
  traffic,
  evidence,
  historyEvents,
}: SummaryInput): Summary {
  const { result } = run;
  return {
    rotationId: result?.rotationId ?? '',
    outcome: result?.outcome ?? 'aborted',
    nodes,
    trustVersions: { before: before.version, after: after.version },
    roots: { before: result?.oldRoot ?? '', after: result?.newRoot ?? '' },
    seconds: Math.round(((run.closedAt ?? run.startedAt) - run.startedAt) / 100) / 10,
    secondsPerPhase,
    commands: { ...traffic },
    historyEvents,
    evidence: { file: evidence.file, documents: evidence.verdict.stages.length, valid: evidence.verdict.valid },
  };
}
