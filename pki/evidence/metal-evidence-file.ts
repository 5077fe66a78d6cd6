/**
 * The file in which the evidence of a run on a machine leaves the deployment: JSON with the documents and the certificates that their signers
 * lead to. The file is a container and proves nothing itself: which certificate counts is said by a pin from elsewhere.
 */
import { ControlError } from '../../domain/errors.ts';
import { listOf, oneOf, type Problem, record, type Shape, text } from '../audit/shape.ts';
import type { MetalEvidenceKind, SignedMetalEvidence } from './metal-evidence.ts';

export interface MetalEvidenceFile {
  readonly runId: string;
  readonly machineId: string;
  readonly trustDomain: string;
  /** DER */
  readonly anchors: readonly Uint8Array[];
  readonly documents: readonly (SignedMetalEvidence & { readonly commandId: string })[];
}

const format = 'better-compute/machine-evidence-file/1';
const longest = 64 * 1024 * 1024;

const base64 = (value: Uint8Array): string => Buffer.from(value).toString('base64');
const bytes = (value: string): Uint8Array => new Uint8Array(Buffer.from(value, 'base64'));

export const encodeMetalEvidenceFile = ({ anchors, documents, ...file }: MetalEvidenceFile): string =>
  `${JSON.stringify(
    {
      format,
      ...file,
      anchors: anchors.map(base64),
      documents: documents.map(({ body, signature, ...one }) => ({ ...one, document: base64(body), signature: base64(signature) })),
    },
    null,
    2,
  )}\n`;

/** @throws MALFORMED with every field at fault in `details.problems` */
export function parseMetalEvidenceFile(content: string): MetalEvidenceFile {
  const value = parseJson(content);
  const problems: Problem[] = [];
  shape(value, '', problems);
  if (problems.length > 0) {
    const list = problems.map(({ path, message }) => `${path || 'it'} ${message}`).join('; ');
    throw new ControlError('MALFORMED', `not a machine evidence file: ${list}`, { details: { reason: 'bad-evidence-file', problems } });
  }
  const { runId, machineId, trustDomain, anchors, documents } = value as Written;
  return {
    runId,
    machineId,
    trustDomain,
    anchors: anchors.map(bytes),
    documents: documents.map(({ document, signature, ...one }) => ({ ...one, body: bytes(document), signature: bytes(signature) })),
  };
}

interface Written {
  readonly runId: string;
  readonly machineId: string;
  readonly trustDomain: string;
  readonly anchors: readonly string[];
  readonly documents: readonly { kind: MetalEvidenceKind; commandId: string; document: string; signature: string }[];
}

function parseJson(content: string): unknown {
  try {
    return JSON.parse(content);
  } catch (cause) {
    throw new ControlError('MALFORMED', 'not a machine evidence file: it is not JSON', { details: { reason: 'not-json' }, cause });
  }
}

/** Strict: what Buffer would skip or round is refused (H-19). */
const base64Text: Shape = (value, path, problems) => {
  text(longest)(value, path, problems);
  if (typeof value === 'string' && base64(bytes(value)) !== value) problems.push({ path, message: 'is not base64' });
};

const shape = record({
  format: oneOf([format]),
  runId: text(64),
  machineId: text(64),
  trustDomain: text(255),
  anchors: listOf(base64Text),
  documents: listOf(record({ kind: oneOf(['erase', 'deploy']), commandId: text(128), document: base64Text, signature: base64Text })),
});
