/** Evidence about the disks of machines; metal-evidence.ts says what holds. */
export {
  type MetalEvidenceKind,
  type SignedMetalEvidence,
  splitSignedEvidence,
  type VerifiedMetalEvidence,
  type VerifyMetalEvidenceOptions,
  verifyMetalEvidence,
} from './metal-evidence.ts';
export { encodeMetalEvidenceFile, type MetalEvidenceFile, parseMetalEvidenceFile } from './metal-evidence-file.ts';
export { judgeMetalEvidence, type MetalEvidencePin, type MetalEvidenceVerdict } from './metal-evidence-verdict.ts';
