/** What the status file says of a daemon that has only just begun. */
import { certificateId, parseCertificate } from '../pki/x509/index.ts';
import { renewsAt } from './agent/renewal.ts';
import type { Identity } from './state/identity.ts';
import type { StatusContent } from './state/status-file.ts';
import { daemonVersion } from './version.ts';

export function initialStatus(identity: Identity, { epoch, pin }: { epoch: bigint; pin: string | null }): StatusContent {
  const leaf = parseCertificate(identity.chain[0] as Uint8Array);
  return {
    pid: process.pid,
    daemonVersion,
    nodeId: identity.nodeId,
    siteId: identity.siteId,
    role: identity.role,
    trustDomain: identity.trustDomain,
    gatewayUrl: identity.gatewayUrl,
    generation: identity.generation.toString(),
    epoch: epoch.toString(),
    trustVersion: identity.trust.version.toString(),
    commandRoots: identity.trust.commandRoots.map(certificateId),
    approverSetPin: pin,
    state: 'connecting' as const,
    stateDetail: 'starting',
    gatewayId: null,
    connectedSinceMs: null,
    nextDialAtMs: null,
    runningCommands: 0,
    clockOffsetMs: null,
    certificateSerial: leaf.serial,
    certificateNotAfterMs: leaf.notAfter,
    renewsAtMs: renewsAt(leaf, identity.nodeId),
    lastCommand: null,
    lastRefusal: null,
    lastFailure: null,
    updatedAtMs: 0,
  };
}
