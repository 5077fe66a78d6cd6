/** Every message by its type name, for Any payloads and JSON (TRN-036). */
import { createRegistry } from '@bufbuild/protobuf';
import { file_bettercompute_agent_v1_commands } from './gen/bettercompute/agent/v1/commands_pb.js';
import { file_bettercompute_agent_v1_desired_state } from './gen/bettercompute/agent/v1/desired_state_pb.js';
import { file_bettercompute_agent_v1_events } from './gen/bettercompute/agent/v1/events_pb.js';
import { file_bettercompute_agent_v1_join } from './gen/bettercompute/agent/v1/join_pb.js';
import { file_bettercompute_agent_v1_metal } from './gen/bettercompute/agent/v1/metal_pb.js';
import { file_bettercompute_agent_v1_secrets } from './gen/bettercompute/agent/v1/secrets_pb.js';
import { file_bettercompute_agent_v1_session } from './gen/bettercompute/agent/v1/session_pb.js';
import { file_bettercompute_agent_v1_trust } from './gen/bettercompute/agent/v1/trust_pb.js';
import { file_bettercompute_agent_v1_tunnel } from './gen/bettercompute/agent/v1/tunnel_pb.js';
import { file_bettercompute_agent_v1_websocket } from './gen/bettercompute/agent/v1/websocket_pb.js';
import { file_bettercompute_common_v1_common } from './gen/bettercompute/common/v1/common_pb.js';
import { file_bettercompute_driver_v1_driver } from './gen/bettercompute/driver/v1/driver_pb.js';
import { file_bettercompute_site_v1_site } from './gen/bettercompute/site/v1/site_pb.js';

export const protocolRegistry = createRegistry(
  file_bettercompute_common_v1_common,
  file_bettercompute_agent_v1_commands,
  file_bettercompute_agent_v1_desired_state,
  file_bettercompute_agent_v1_events,
  file_bettercompute_agent_v1_join,
  file_bettercompute_agent_v1_metal,
  file_bettercompute_agent_v1_secrets,
  file_bettercompute_agent_v1_session,
  file_bettercompute_agent_v1_trust,
  file_bettercompute_agent_v1_tunnel,
  file_bettercompute_agent_v1_websocket,
  file_bettercompute_driver_v1_driver,
  file_bettercompute_site_v1_site,
);
