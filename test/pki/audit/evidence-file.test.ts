/** The file in which evidence leaves a deployment. */
import assert from 'node:assert/strict';
import type { ControlError } from '../../../domain/errors.ts';
import { parseStageEvidence } from '../../../pki/audit/evidence.ts';
import { encodeEvidenceFile, parseEvidenceFile } from '../../../pki/audit/evidence-file.ts';
import { createAuditKey, goodRotation, signAll } from './support.ts';

const key = createAuditKey();
const refused = (code: string, message: RegExp) => (error: unknown) => {
  assert.equal((error as ControlError).code, code);
  assert.match((error as Error).message, message);
  return true;
};

describe('the evidence file', () => {
  it('carries key and documents unchanged', async () => {
    const documents = await signAll(key, goodRotation);
    const file = parseEvidenceFile(encodeEvidenceFile({ auditKey: key.spki, documents }));
    assert.deepEqual(file, { auditKey: key.spki, documents });
    assert.equal(parseStageEvidence(file.documents[0]?.document ?? new Uint8Array()).stage, 'plan');
  });

  const broken: readonly [string, string, RegExp][] = [
    ['text', 'hello', /^not a rotation evidence file: it is not JSON$/],
    ['a list', '[]', /^not a rotation evidence file: it is not an object$/],
    [
      'another format and a stray field',
      '{"format":"x","auditKey":"","documents":[],"more":1}',
      /^not a rotation evidence file: more is not a known field; format is not one of better-compute\/rotation-evidence-file\/1$/,
    ],
    [
      'base64 with a line break',
      '{"format":"better-compute/rotation-evidence-file/1","auditKey":"AA==\\n","documents":[]}',
      /^not a rotation evidence file: auditKey is not base64$/,
    ],
  ];
  for (const [title, content, message] of broken) {
    it(`refuses ${title}`, () => assert.throws(() => parseEvidenceFile(content), refused('MALFORMED', message)));
  }
});
