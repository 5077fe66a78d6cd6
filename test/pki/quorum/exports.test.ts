/** What pki/quorum offers to the rest of the house: a name that comes or goes is seen here (QUO-048). */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as quorum from '../../../pki/quorum/index.ts';

describe('the exports of pki/quorum', () => {
  it('QUO-048 are these', () => {
    assert.deepEqual(Object.keys(quorum).sort(), [
      'approverSetParts',
      'batchSubject',
      'countApprovers',
      'countSigners',
      'createScope',
      'decideApproverSet',
      'decodeProof',
      'encodeProof',
      'isIncluded',
      'leafHash',
      'maxBatchPayloads',
      'maxLeafPayload',
      'maxLeaves',
      'maxWalkedChanges',
      'parseProof',
      'problemsOfQuorum',
      'quorumChangesOf',
      'quorumOf',
      'requiredApprovals',
      'rootOfScope',
      'signApproval',
      'signApproverSet',
      'signersOfSet',
      'validateQuorum',
      'verifyApproverSetChange',
      'verifyQuorum',
    ]);
  });

  it('APPR-034 the accept rule stands at the field of the bundle, and the code that follows it names the place', () => {
    const at = (path: string): string => readFileSync(join(import.meta.dirname, '../../..', path), 'utf8');
    const proto = at('proto/bettercompute/agent/v1/trust.proto');
    const [comment = ''] = /(?: {2}\/\/.*\n)+ {2}uint64 approver_set_epoch = 8;/.exec(proto) ?? [];
    for (const words of [
      "takes (N, e') only when e' > e",
      "H's threshold of H's own keys",
      'stale-epoch',
      'approver-set-unsigned',
      'pin-mismatch',
    ])
      assert.ok(comment.replaceAll(/\n {2}\/\/ /g, ' ').includes(words), words);
    assert.match(at('pki/quorum/decide-set.ts'), /approver_set_epoch in trust\.proto/);
  });

  it('QUO-004 nothing of the control plane reads a private approver key', () => {
    const root = join(import.meta.dirname, '../../..');
    const sources = ['api', 'gateway', 'workers', 'activities', 'services', 'runtime'].flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => join(folder, name))
        // The one table of names, which reads none of them: a misspelt one is refused by it.
        .filter((path) => path !== 'runtime/env-names.ts'),
    );
    const signing = sources.filter((path) => /\b(signApproval|signApproverSet)\b|BETTER_COMPUTE_APPROVER_PASSPHRASE/.test(at(root, path)));
    assert.deepEqual(signing, []);
  });
});

const at = (root: string, path: string): string => readFileSync(join(root, path), 'utf8');
