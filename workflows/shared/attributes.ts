/** How operators find workflows: five search attributes, written on a change of phase only (each write is an event). */
import { defineSearchAttributeKey, type SearchAttributeUpdatePair } from '@temporalio/common';
import { upsertSearchAttributes, workflowInfo } from '@temporalio/workflow';
import { summaries } from '../summaries.ts';

const summary = defineSearchAttributeKey('BcSummary', 'KEYWORD');
const phase = defineSearchAttributeKey('BcPhase', 'KEYWORD');
const waitingOn = defineSearchAttributeKey('BcWaitingOn', 'KEYWORD_LIST');
const deadline = defineSearchAttributeKey('BcDeadline', 'DATETIME');
const behind = defineSearchAttributeKey('BcBehind', 'INT');

export interface PhaseAttributes {
  readonly phase: string;
  readonly waitingOn?: readonly string[];
  readonly deadlineMs?: number | null;
  readonly behind?: number;
}

const namesShown = 10;
const nameLength = 200;

/** Absent values are taken away: a phase never shows the numbers of the one before. */
export function showPhase(attributes: PhaseAttributes): void {
  const names = (attributes.waitingOn ?? []).slice(0, namesShown).map((name) => name.slice(0, nameLength));
  const at = attributes.deadlineMs;
  const pairs: SearchAttributeUpdatePair[] = [
    { key: summary, value: summaries[workflowInfo().workflowType] ?? null },
    { key: phase, value: attributes.phase },
    { key: waitingOn, value: names.length > 0 ? names : null },
    { key: deadline, value: at === null || at === undefined ? null : new Date(at) },
    { key: behind, value: attributes.behind ?? null },
  ];
  upsertSearchAttributes(pairs);
}
