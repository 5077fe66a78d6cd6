/** Files of approvers' signatures: what belongs together, and what is told about a file that does not. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readApprovalFiles } from '../../cli/approvals-file.ts';
import { readChangeFiles } from '../../cli/commands/approvers/rotate.ts';
import { isControlError } from '../../domain/errors.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const kid = 'a'.repeat(64);
const sig = 'A'.repeat(86);
const quorum = { approvers: [{ kid, spki: 'MFkw' }], threshold: 1, tiers: [], unbatchedDestructivePerHour: 0 };

describe('files of approvers', () => {
  const folder = scratchFolder();
  after(removeScratchFolders);
  const file = (name: string, value: unknown): string => {
    const path = join(folder, name);
    writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value));
    return path;
  };
  const refusedBy = (run: () => unknown): string => {
    try {
      run();
    } catch (error) {
      assert.ok(isControlError(error) && error.code === 'INVALID_INPUT', String(error));
      return error.message.replaceAll(`${folder}/`, '');
    }
    throw new assert.AssertionError({ message: 'it was accepted' });
  };

  it('H-08 reads the signatures of several files, whatever else they say', () => {
    const one = file('ann.json', { kid, sig, rotationId: 'r', kind: 'abort' });
    const list = file('more.json', [{ kid: 'b'.repeat(64), sig }]);
    assert.deepEqual(readApprovalFiles(`${one}, ${list}`), [
      { kid, sig },
      { kid: 'b'.repeat(64), sig },
    ]);
  });

  it('H-08 names the file that is none', () => {
    assert.equal(
      refusedBy(() => readApprovalFiles(join(folder, 'gone.json'))),
      'gone.json cannot be read',
    );
    assert.equal(
      refusedBy(() => readApprovalFiles(file('text.json', 'hello'))),
      'text.json is not JSON',
    );
    assert.match(
      refusedBy(() => readApprovalFiles(file('other.json', { kid }))),
      /^other\.json does not hold \{"kid": …, "sig": …\}/,
    );
    assert.match(
      refusedBy(() => readApprovalFiles(file('long.json', ' '.repeat(65_537)))),
      /^long\.json has 65537 characters/,
    );
  });

  it('APPR-030 the files of a change sign one set and one epoch', () => {
    const one = file('ann-2.json', { epoch: 2, kid, sig, quorum });
    const two = file('bob-2.json', { epoch: 2, kid: 'b'.repeat(64), sig, quorum });
    const change = readChangeFiles([one, two]);
    assert.deepEqual([change.epoch, change.approvers, change.threshold, change.signatures.length], [2, ['MFkw'], 1, 2]);
    assert.equal(
      refusedBy(() => readChangeFiles([one, file('bob-3.json', { epoch: 3, kid, sig, quorum })])).replaceAll(`${folder}/`, ''),
      'bob-3.json signs epoch 3, ann-2.json signs epoch 2',
    );
    assert.equal(
      refusedBy(() => readChangeFiles([one, file('other-2.json', { epoch: 2, kid, sig, quorum: { ...quorum, threshold: 2 } })])),
      'other-2.json signs another set than ann-2.json',
    );
    assert.match(
      refusedBy(() => readChangeFiles([file('bad.json', { epoch: 0 })])),
      /^bad\.json is not what better-compute batch sign-approvers writes$/,
    );
  });
});
