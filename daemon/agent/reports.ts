/** What a daemon says of itself: Hello at the start of a session, StatusReport whenever something of it changed. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { approverSetDigest } from '../../pki/trust/index.ts';
import { parseCertificate } from '../../pki/x509/index.ts';
import { type HelloSchema, PROTOCOL_VERSION, type StatusReportSchema } from '../../proto/index.ts';
import { daemonVersion } from '../version.ts';
import type { AgentState } from './agent-state.ts';
import { decodeSpec, sectionReports } from './desired-state.ts';

/** ROT-016: also said right after a bundle was taken, so that no gate waits for a reconnect. */
export function statusOf(state: AgentState): MessageInitShape<typeof StatusReportSchema> {
  const spec = state.spec.current;
  return {
    trustVersion: BigInt(state.held().version),
    specGeneration: spec?.generation ?? 0n,
    sections: spec === undefined ? [] : sectionReports(decodeSpec(spec.spec), state.spec),
    daemonVersion,
    uptimeSeconds: BigInt(Math.floor(process.uptime())),
    runningCommands: state.executor.running,
    certificateNotAfterMs: BigInt(parseCertificate(state.identity.chain[0] as Uint8Array).notAfter),
    ...approverSetOf(state),
  };
}

/** What this daemon says first (ROT-015, SKEW-001, FRM-006, FRM-008). */
export function helloOf(state: AgentState, bootId: string): MessageInitShape<typeof HelloSchema> {
  return {
    protoMin: PROTOCOL_VERSION.min,
    protoMax: PROTOCOL_VERSION.max,
    daemonVersion,
    capabilities: [...state.capabilities],
    trustVersion: BigInt(state.held().version),
    bootId,
    epochSeen: state.marks.current.epoch,
    journalSeq: state.journal.highestSeq,
    specGeneration: state.spec.current?.generation ?? 0n,
    timeMs: BigInt(state.wallMs()),
    role: state.identity.role,
    ...approverSetOf(state),
  };
}

/** DMN-027: the set it holds; nothing where there is none. */
function approverSetOf(state: AgentState): { approverSetEpoch: bigint; approverSetSha256: Uint8Array } {
  const { quorum } = state;
  // A set that cannot be read is none that could be named: the operator sees a node that lags, which is what it is.
  if (quorum.kind === 'unreadable' || quorum.fields.approverKeys.length === 0)
    return { approverSetEpoch: 0n, approverSetSha256: new Uint8Array() };
  return { approverSetEpoch: BigInt(quorum.epoch), approverSetSha256: Buffer.from(approverSetDigest(quorum.fields), 'hex') };
}
