/**
 * The file in which a machine's evidence leaves the deployment: JSON with the documents in order. It is a container and proves nothing;
 * metal-evidence.ts judges what is in it against a root from elsewhere.
 */
import { ControlError } from '../../domain/errors.ts';
import { listOf, oneOf, type Problem, record, type Shape, text } from '../audit/shape.ts';
import type { SignedMetalEvidence } from './metal-evidence.ts';

const format = 'better-compute/metal-evidence-file/1';
/** Some thousand runs of one machine. */
const longest = 64 * 2 ** 20;

const base64 = (value: Uint8Array): string => Buffer.from(value).toString('base64');
const bytes = (value: string): Uint8Array => new Uint8Array(Buffer.from(value, 'base64'));

export const encodeMetalEvidenceFile = (documents: readonly SignedMetalEvidence[]): string =>
  `${JSON.stringify(
    { format, documents: documents.map(({ kind, body, signature }) => ({ kind, body: base64(body), signature: base64(signature) })) },
    null,
    2,
  )}\n`;

/** Strict: what Buffer would skip or round is refused (H-19). */
const base64Text: Shape = (value, path, problems) => {
  text(longest)(value, path, problems);
  if (typeof value === 'string' && base64(bytes(value)) !== value) problems.push({ path, message: 'is not base64' });
};

const shape = record({
  format: oneOf([format]),
  documents: listOf(record({ kind: oneOf(['erase', 'deploy']), body: base64Text, signature: base64Text })),
});

/** @throws MALFORMED with every field at fault in `details.problems` */
export function parseMetalEvidenceFile(content: string): SignedMetalEvidence[] {
  const value = parseJson(content);
  const problems: Problem[] = [];
  shape(value, '', problems);
  if (problems.length > 0) {
    const list = problems.slice(0, 20).map(({ path, message }) => `${path || 'it'} ${message}`);
    throw new ControlError('MALFORMED', `not a machine evidence file: ${list.join('; ')}`, {
      details: { reason: 'bad-evidence-file', problems },
    });
  }
  const { documents } = value as { documents: { kind: SignedMetalEvidence['kind']; body: string; signature: string }[] };
  return documents.map(({ kind, body, signature }) => ({ kind, body: bytes(body), signature: bytes(signature) }));
}

function parseJson(content: string): unknown {
  if (content.length > longest)
    throw new ControlError('MALFORMED', `not a machine evidence file: it has more than ${longest} characters`, {
      details: { reason: 'bad-evidence-file' },
    });
  try {
    return JSON.parse(content);
  } catch (cause) {
    throw new ControlError('MALFORMED', 'not a machine evidence file: it is not JSON', { details: { reason: 'not-json' }, cause });
  }
}
