/** Evidence about the disks of machines; metal-evidence.ts says what holds, metal-evidence-verdict.ts judges a file of it. */
export { type SignedMetalEvidence, splitSignedEvidence, type VerifiedMetalEvidence, verifyMetalEvidence } from './metal-evidence.ts';
