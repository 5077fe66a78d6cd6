/** The demonstration of a batch, small: the whole control plane, real daemons, the programs that approvers use. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { parseEvidenceFile } from '../../pki/audit/evidence-file.ts';
import { isQuorumEvidence } from '../../pki/audit/verify-quorum-evidence.ts';
import { freePorts, nothingLeftOf, runStart, type StartedProgram, stateFolder } from '../harness/run-start.ts';
import { removeScratchFolders } from '../harness/scratch.ts';

interface Summary {
  outcome: string;
  nodes: number;
  operations: number;
  required: number;
  approvedBy: string[];
  commands: Record<string, number>;
  waves: number;
  replayed: { state: string; error: string };
  historyEvents: number;
  evidence: { file: string; valid: boolean; approvers: number };
}

describe('the demonstration of a batch', function () {
  this.timeout(600_000);
  let program: StartedProgram | undefined;
  afterEach(async () => {
    program?.kill('SIGKILL');
    await program?.ended;
  });
  after(removeScratchFolders);

  it('BAT-062 reboots wait for two of three approvers, run in waves, and one that is played again is refused by the machine', async function () {
    if (process.platform !== 'linux') this.skip();
    const home = stateFolder();
    program = runStart(['--demonstration', '--batch', '--once', '--nodes', '3', '--each', '2'], {
      ...freePorts,
      BETTER_COMPUTE_HOME: home,
    });
    const { code, out, err } = await program.ended;
    assert.equal(code, 0, err);
    const summary = JSON.parse(out.trimEnd().split('\n').at(-1) ?? '') as Summary;
    assert.deepEqual(
      [summary.outcome, summary.nodes, summary.operations, summary.required, summary.commands],
      ['finished', 3, 6, 2, { done: 6 }],
    );
    assert.equal(new Set(summary.approvedBy).size, 2);
    assert.match(err, /alice approved: better-compute batch approve\n/);
    assert.match(err, /bob approved: temporal workflow update execute --name approve\n/);
    assert.equal(summary.replayed.state, 'rejected');
    assert.match(summary.replayed.error, /^batch-unapproved: leaf-used/);
    assert.deepEqual([summary.evidence.valid, summary.evidence.approvers], [true, 2]);
    assert.ok(isQuorumEvidence(parseEvidenceFile(readFileSync(summary.evidence.file, 'utf8')).documents));
    await nothingLeftOf(home);
  });
});
