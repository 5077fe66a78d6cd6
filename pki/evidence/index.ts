/** Evidence about the disks of machines; metal-evidence.ts says what holds. */
export { encodeMetalEvidenceFile, parseMetalEvidenceFile } from './evidence-file.ts';
export {
  type MetalEvidenceKind,
  type SignedMetalEvidence,
  splitSignedEvidence,
  type VerifiedMetalEvidence,
  type VerifyMetalEvidenceOptions,
  verifyMetalEvidence,
} from './metal-evidence.ts';
