/** The row of a session that is being opened: what TLS proved, what Hello said, and where it is. */
import type { SessionPeer } from './contract.ts';
import type { HelloFacts } from './read-frames.ts';
import type { NewSession } from './store.ts';

export function openingRow(
  { id, peer }: { readonly id: string; readonly peer: SessionPeer },
  { hello, gatewayId, now }: { readonly hello: HelloFacts; readonly gatewayId: string; readonly now: number },
): NewSession {
  return {
    sessionId: id,
    nodeId: peer.nodeId,
    gatewayId,
    role: peer.role,
    certIssuer: peer.certIssuer,
    certSerial: peer.certSerial,
    peer: peer.address,
    bootId: hello.bootId,
    daemonVersion: hello.daemonVersion,
    protoMax: hello.protocol.max,
    capabilities: hello.capabilities,
    epochSeen: hello.epochSeen,
    trustVersion: hello.trustVersion,
    approverSetEpoch: hello.approverSetEpoch,
    approverSetSha256: hello.approverSetSha256,
    now,
  };
}
