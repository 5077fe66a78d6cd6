/** The wire protocol: generated messages and the helpers both sides share. Browser-safe; depends on @bufbuild/protobuf only. */
export * from './bounds.ts';
export * from './embedded.ts';
export * from './frames.ts';
export * from './gen/bettercompute/agent/v1/commands_pb.js';
export * from './gen/bettercompute/agent/v1/desired_state_pb.js';
export * from './gen/bettercompute/agent/v1/join_pb.js';
export * from './gen/bettercompute/agent/v1/metal_pb.js';
export * from './gen/bettercompute/agent/v1/secrets_pb.js';
export * from './gen/bettercompute/agent/v1/session_pb.js';
export * from './gen/bettercompute/agent/v1/trust_pb.js';
export * from './gen/bettercompute/agent/v1/tunnel_pb.js';
export * from './gen/bettercompute/common/v1/common_pb.js';
export * as site from './gen/bettercompute/site/v1/site_pb.js';
export * from './grpc-message.ts';
export * from './grpc-text.ts';
export * from './negotiate.ts';
export * from './registry.ts';
export * from './signing-input.ts';
