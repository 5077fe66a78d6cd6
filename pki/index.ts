/**
 * The PKI library: bytes in, decisions out. node:crypto only (KEY-006); no files, no clock, no database. Services, workers,
 * gateway, daemon and CLI all judge by this code, so they cannot disagree.
 */
export * from './authority/index.ts';
export * from './bundle/index.ts';
export * from './enroll/index.ts';
export * from './envelope/index.ts';
export * from './exec/index.ts';
export * from './jose/index.ts';
export * from './quorum/index.ts';
export * from './secrets/index.ts';
export * from './signers/index.ts';
export * from './ssh/index.ts';
export * from './tpm/index.ts';
export * from './trust/index.ts';
export * from './workload/index.ts';
export * from './x509/index.ts';
