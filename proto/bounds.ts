/**
 * Size bounds of everything that crosses an edge, in bytes (BND-003). Both sides check before they parse: a length
 * above the bound is refused before a byte of it is buffered or decoded.
 */
export const bounds = Object.freeze({
  agentFrame: 4 * 1024 * 1024,
  serverFrame: 4 * 1024 * 1024,
  hello: 256 * 1024,
  commandBody: 1024 * 1024,
  commandResultPayload: 1024 * 1024,
  desiredStateBody: 2 * 1024 * 1024,
  eventPayload: 256 * 1024,
  batchApproval: 64 * 1024,
  leafPayload: 64 * 1024,
  batchPayloads: 8 * 1024 * 1024,
  joinRequest: 256 * 1024,
  joinResponse: 256 * 1024,
  renewRequest: 64 * 1024,
  renewResponse: 64 * 1024,
  rekeyRequest: 64 * 1024,
  secretRequest: 16 * 1024,
  secretResponse: 256 * 1024,
  workloadTokenRequest: 16 * 1024,
  workloadTokenResponse: 32 * 1024,
  eventReport: 264 * 1024,
  eventReceipt: 4 * 1024,
  tunnelData: 64 * 1024,
  tunnelFrame: 68 * 1024,
  webSocketProof: 12 * 1024,
  webSocketMessage: 16 * 1024 * 1024,
  scopePage: 8 * 1024 * 1024,
  trustBundle: 256 * 1024,
  daemonRelease: 4 * 1024,
  certificate: 16 * 1024,
  certificateChainLength: 4,
} as const);

export type Bound = keyof typeof bounds;
