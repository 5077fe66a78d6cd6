/**
 * A file of evidence, judged as a whole: every document by itself (metal-evidence.ts), and that they are of the run, the machine and the
 * commands under which they are filed. Whose certificate counts is a pin that the reader has from elsewhere.
 */
import { ControlError, isControlError } from '../../domain/errors.ts';
import { parseCertificate } from '../x509/index.ts';
import { spkiPin } from '../x509/spki.ts';
import { type VerifiedMetalEvidence, verifyMetalEvidence } from './metal-evidence.ts';
import type { MetalEvidenceFile } from './metal-evidence-file.ts';

export interface MetalEvidenceVerdict {
  readonly runId: string;
  readonly machineId: string;
  readonly trustDomain: string;
  readonly documents: readonly VerifiedMetalEvidence[];
  /** Why it is not to be believed, as far as it is not. */
  readonly problems: readonly { readonly document: number; readonly check: string; readonly message: string }[];
  /** It is to be believed: signed by ramdisks of the pinned deployment, about this machine. */
  readonly valid: boolean;
  /** What the machine itself says was not done. */
  readonly shortcomings: readonly string[];
}

export interface MetalEvidencePin {
  /** Of the deployment's root, or of its node authority (pki show: rootPin, nodeCaPin). */
  readonly pin: string;
  /** null where only a pin is known: then it is the file's, which the certificates must be of. */
  readonly trustDomain: string | null;
}

/** Never throws for what is in the file. */
export function judgeMetalEvidence(file: MetalEvidenceFile, { pin, trustDomain }: MetalEvidencePin): MetalEvidenceVerdict {
  const { runId, machineId } = file;
  const domain = trustDomain ?? file.trustDomain;
  const anchors = file.anchors.filter((der) => isPinned(der, pin));
  const documents: VerifiedMetalEvidence[] = [];
  const problems: { document: number; check: string; message: string }[] = [];
  const say = (document: number, check: string, message: string): void => void problems.push({ document, check, message });
  if (file.documents.length === 0) say(0, 'documents', 'the file holds no document');
  if (anchors.length === 0) say(0, 'pin', `no certificate in the file has the key ${pin}`);
  else if (file.trustDomain !== domain) say(0, 'trust-domain', `the file is of ${file.trustDomain}, not of ${domain}`);
  else {
    for (const [index, filed] of file.documents.entries()) {
      try {
        const verified = verifyMetalEvidence({ evidence: filed, anchors, trustDomain: domain });
        documents.push(verified);
        for (const [what, said, wanted] of filedAs(verified, { runId, machineId, commandId: filed.commandId }))
          if (said !== wanted) say(index + 1, 'filed', `is of ${what} ${said}, filed under ${wanted}`);
      } catch (error) {
        if (!isControlError(error)) throw error;
        say(index + 1, reasonOf(error), error.message);
      }
    }
  }
  const shortcomings = documents.flatMap((one) => one.shortcomings.map((text) => `${one.kind}: ${text}`));
  return { runId, machineId, trustDomain: domain, documents, problems, valid: problems.length === 0, shortcomings };
}

const reasonOf = ({ code, details }: ControlError): string => (typeof details['reason'] === 'string' ? details['reason'] : code);

const filedAs = (
  verified: VerifiedMetalEvidence,
  file: { readonly runId: string; readonly machineId: string; readonly commandId: string },
): readonly (readonly [string, string, string])[] => [
  ['run', verified.runId, file.runId],
  ['machine', verified.nodeId, file.machineId],
  ['command', verified.commandId, file.commandId],
];

function isPinned(der: Uint8Array, pin: string): boolean {
  try {
    return spkiPin(parseCertificate(der).spki) === pin;
  } catch (error) {
    if (error instanceof ControlError) return false;
    throw error;
  }
}
