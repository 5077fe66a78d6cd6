/**
 * The file in which a rotation's evidence leaves the deployment: JSON with the audit key and the documents in order. The
 * file is a container and proves nothing itself; verify-evidence.ts checks what is in it against a pin from elsewhere.
 */
import { ControlError } from '../../domain/errors.ts';
import type { SignedEvidence } from './evidence.ts';
import { listOf, oneOf, type Problem, record, type Shape, text } from './shape.ts';

export interface EvidenceFile {
  /** SPKI (DER) of the audit key. */
  readonly auditKey: Uint8Array;
  readonly documents: readonly SignedEvidence[];
}

const format = 'better-compute/rotation-evidence-file/1';
/** A document lists every node of the fleet: 64 MiB is far above 100,000 of them. */
const longest = 64 * 1024 * 1024;

export const encodeEvidenceFile = (file: EvidenceFile): string =>
  `${JSON.stringify(
    {
      format,
      auditKey: base64(file.auditKey),
      documents: file.documents.map(({ document, signature }) => ({ document: base64(document), signature: base64(signature) })),
    },
    null,
    2,
  )}\n`;

/** @throws ControlError MALFORMED with every field at fault in `details.problems` */
export function parseEvidenceFile(content: string): EvidenceFile {
  const value = parseJson(content);
  const problems: Problem[] = [];
  shape(value, '', problems);
  if (problems.length > 0) {
    const list = problems.map((problem) => `${problem.path || 'it'} ${problem.message}`).join('; ');
    throw new ControlError('MALFORMED', `not a rotation evidence file: ${list}`, { details: { reason: 'bad-evidence-file', problems } });
  }
  const file = value as { auditKey: string; documents: { document: string; signature: string }[] };
  return {
    auditKey: bytes(file.auditKey),
    documents: file.documents.map(({ document, signature }) => ({ document: bytes(document), signature: bytes(signature) })),
  };
}

function parseJson(content: string): unknown {
  try {
    return JSON.parse(content);
  } catch (cause) {
    throw new ControlError('MALFORMED', 'not a rotation evidence file: it is not JSON', { details: { reason: 'not-json' }, cause });
  }
}

const base64 = (value: Uint8Array): string => Buffer.from(value).toString('base64');
const bytes = (value: string): Uint8Array => new Uint8Array(Buffer.from(value, 'base64'));

/** Strict: what Buffer would skip or round is refused (H-19). */
const base64Text: Shape = (value, path, problems) => {
  text(longest)(value, path, problems);
  if (typeof value === 'string' && base64(bytes(value)) !== value) problems.push({ path, message: 'is not base64' });
};

const shape = record({
  format: oneOf([format]),
  auditKey: base64Text,
  documents: listOf(record({ document: base64Text, signature: base64Text })),
});
