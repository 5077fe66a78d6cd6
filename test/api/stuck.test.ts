/** The words of the stuck list, from facts to help. */
import assert from 'node:assert/strict';
import { stuckApproverSet, stuckBatch, stuckBoots, stuckEnrolment, stuckWorkflow, type WorkflowFacts } from '../../api/stuck.ts';
import { now } from './support.ts';

const quiet: WorkflowFacts = {
  workflowId: 'rotate-command-root',
  type: 'rotateCommandRoot',
  since: now,
  phase: 'waiting-fleet',
  waitingOn: [],
  deadline: null,
  behind: null,
  problems: [],
  retrying: [],
};
const said = (over: Partial<WorkflowFacts>): (string | null | undefined)[] => {
  const item = stuckWorkflow({ ...quiet, ...over });
  return [item?.waitsFor, item?.help];
};

describe('a workflow that waits', () => {
  it('is not stuck when it waits for nothing', () => assert.equal(stuckWorkflow(quiet), null));

  const exclude = 'start the nodes that are behind, or: better-compute rotation exclude <node> --reason <why>';
  const cases: readonly [string, Partial<WorkflowFacts>, string, string][] = [
    [
      'names the last failure of the activity that tries again',
      { retrying: [{ type: 'awaitFleet', attempt: 3, failure: '1 behind' }] },
      'waiting-fleet: 1 behind (awaitFleet, attempt 3)',
      exclude,
    ],
    ['names whom it waits for', { waitingOn: ['node-3', 'node-4'], behind: 2 }, 'waiting-fleet: node-3, node-4', exclude],
    [
      'names until when it waits',
      { phase: 'waiting-drop', deadline: now },
      'waiting-drop: until 2030-01-01T12:00:00.000Z',
      'better-compute rotation status',
    ],
    [
      'sends a rotation that holds for a repair to doctor',
      { phase: 'blocked', waitingOn: ['key bundle'], retrying: [{ type: 'awaitFreshness', attempt: 9, failure: 'generation 3, not 5' }] },
      'blocked: generation 3, not 5 (awaitFreshness, attempt 9)',
      'better-compute doctor says how to repair it; the rotation then goes on by itself',
    ],
    [
      'names the word that lifts a hold for the operator',
      { phase: 'blocked', waitingOn: ['operator'] },
      'blocked: operator',
      'better-compute rotation status says what was refused; repair it, then: better-compute rotation resume',
    ],
    [
      'names the process that an exchange of a key waits for, and the words for that key',
      { workflowId: 'renew-ca/serving', type: 'renewCa', phase: 'waiting-processes', waitingOn: ['worker-signing w-1'], behind: 1 },
      'waiting-processes: worker-signing w-1',
      'start the processes that are behind again, or: better-compute rotation force --phase <gate> --reason <why> --key ca --ca serving',
    ],
    [
      'says that nothing shortens a wait for what was signed',
      {
        workflowId: 'rotate-ticket-key',
        type: 'rotateTicketKey',
        phase: 'waiting-retire',
        waitingOn: ['what the former one signed'],
        deadline: now,
      },
      'waiting-retire: what the former one signed',
      'nothing needs to be done; no message shortens this wait',
    ],
    [
      'names the word that lifts the hold of an exchange',
      { workflowId: 'rotate-workload-key', type: 'rotateWorkloadKey', phase: 'blocked', waitingOn: ['operator'] },
      'blocked: operator',
      'better-compute rotation status --key workload says what was refused; repair it, then: better-compute rotation resume --key workload',
    ],
    [
      'names the batch that waits for its approvers, and the command that approves it',
      { workflowId: 'batch/b-1', type: 'approveBatch', phase: 'waiting-approvals', waitingOn: ['approvers'], behind: 1 },
      'waiting-approvals: approvers',
      'approvers review and sign it: better-compute batch approve b-1 --key <file>; or end it: better-compute batch cancel b-1 --reason <why>',
    ],
    [
      'says how far a batch is that waits for machines',
      { workflowId: 'batch/b-1', type: 'approveBatch', phase: 'releasing', waitingOn: ['nodes'], behind: 7 },
      'releasing: nodes',
      'better-compute batch show b-1 says how far it is; or end it: better-compute batch cancel b-1 --reason <why>',
    ],
    [
      'names who enforces another approver set, and what helps',
      { workflowId: 'rotate-approver-set', type: 'rotateApproverSet', phase: 'waiting-fleet', waitingOn: ['node-7'], behind: 1 },
      'waiting-fleet: node-7',
      'better-compute approvers show names the machines; start them, pin again what missed several changes, or: better-compute rotation exclude <node> --reason <why> --key approvers',
    ],
    [
      'names the process that a step on a machine waits for, when no worker takes it',
      {
        workflowId: 'node/web-7/identity',
        type: 'enrolNode',
        phase: 'reaching',
        retrying: [{ type: 'reachHost', attempt: 1, failure: 'no worker takes it' }],
      },
      'reaching: no worker takes it (reachHost, attempt 1)',
      'start a hosts worker, which takes from the queue bc-hosts; better-compute enrolments list --node web-7 --open; or end it: better-compute enrolments cancel <enrolment> --reason <why>',
    ],
    [
      'names the machine that an enrolment cannot reach, and how it is ended',
      {
        workflowId: 'node/web-7/identity',
        type: 'reenrolNode',
        phase: 'installing',
        retrying: [{ type: 'installDaemon', attempt: 4, failure: '10.0.0.7:22 cannot be reached over SSH: ECONNREFUSED' }],
      },
      'installing: 10.0.0.7:22 cannot be reached over SSH: ECONNREFUSED (installDaemon, attempt 4)',
      'better-compute enrolments list --node web-7 --open; or end it: better-compute enrolments cancel <enrolment> --reason <why>',
    ],
    [
      'says first that its code cannot run',
      { problems: ['category=WorkflowTaskFailed'], waitingOn: ['node-3'] },
      'waiting-fleet: its code cannot run (category=WorkflowTaskFailed)',
      "read the worker's log, then: temporal workflow show --workflow-id rotate-command-root",
    ],
    [
      'sends to Temporal for what is no rotation',
      { workflowId: 'command/x', type: 'runCommand', phase: null, waitingOn: ['node-3'] },
      'node-3',
      'temporal workflow describe --workflow-id command/x',
    ],
  ];
  for (const [title, facts, waitsFor, help] of cases) it(title, () => assert.deepEqual(said(facts), [waitsFor, help]));
});

it('LAG-011 no approver set is waited for where none is published, or nobody lags', () => {
  const lag = { connected: 3, behind: 1, sample: [{ nodeId: 'n1', epoch: 2 }], epoch: 4, isPublished: true };
  assert.equal(stuckApproverSet(lag)?.subject, '1 of 3 connected node(s)');
  for (const none of [null, { ...lag, behind: 0 }, { ...lag, isPublished: false }]) assert.equal(stuckApproverSet(none), null);
});

describe('a batch that no workflow watches', () => {
  const gone = { id: 'b-1', since: now, ended: 'TERMINATED', failure: null };

  it('says how its last workflow ended, why, and what helps', () => {
    assert.equal(stuckBatch(gone).waitsFor, 'a workflow: its last one ended as TERMINATED');
    const failed = stuckBatch({ ...gone, ended: 'FAILED', failure: 'held command c-1 is not the leaf that its proof is of' });
    assert.deepEqual(
      [failed.subject, failed.since, failed.waitsFor],
      ['batch/b-1', now, 'a workflow: its last one ended as FAILED (held command c-1 is not the leaf that its proof is of)'],
    );
    assert.match(failed.help, /^bc-reconcile-batches starts one within a minute; if it fails again: better-compute batch show b-1,/);
    assert.match(stuckBatch({ ...gone, ended: null }).waitsFor, /none was started/);
  });
});

describe('a boot server that says what its machines no longer are', () => {
  it('M6 is named with what its agent answered, and how many machines it concerns', () => {
    const untold = { agentId: 'agent-b', connected: true, machineIds: ['m3', 'm4'], machines: 7, failed: 5, error: 'the disk is full' };
    assert.deepEqual(stuckBoots(untold), {
      kind: 'node',
      subject: 'agent-b',
      since: null,
      waitsFor: 'its boot server to be told what became of 7 machine(s) (m3, m4): 5 attempt(s) failed: the disk is full',
      help: 'read the log of bcd on agent-b; until then, turn off what must not start its disk',
    });
    assert.match(stuckBoots({ ...untold, error: '' }).waitsFor, /: 5 attempt\(s\) failed$/);
  });
});

it('XC-036 an enrolment that nobody carries out is named with what ends it', () => {
  const orphan = { id: 'enr-1', workflowId: 'node/web-7/identity', since: now, ended: null, failure: null };
  assert.deepEqual(stuckEnrolment(orphan), {
    kind: 'workflow',
    subject: 'node/web-7/identity',
    since: now,
    waitsFor: 'a workflow: none was started for enrolment enr-1',
    help: 'better-compute enrolments cancel enr-1 --reason <why>, then order it again; what the node was before, it is still',
  });
  assert.equal(stuckEnrolment({ ...orphan, ended: 'TERMINATED' }).waitsFor, 'a workflow: its last one ended as TERMINATED');
});
