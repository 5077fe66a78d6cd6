/** Welcome: what a gateway says of itself, of the session and, when it is newer than the daemon's, of the trust bundle. */
import { fromBinary } from '@bufbuild/protobuf';
import { SignatureSchema } from '../../proto/index.ts';
import type { ServerFrameInit, SessionTerms } from './contract.ts';
import type { PublishedTrust } from './store.ts';

export interface WelcomeFacts {
  readonly protocolVersion: number;
  readonly upgradeRequired: boolean;
  readonly epoch: number;
  /** null: the daemon holds it, or nothing is published. */
  readonly trust: PublishedTrust | null;
  readonly now: number;
}

export function welcomeFrame(
  { gatewayId, capabilities, timing }: SessionTerms,
  { trust, now, epoch, ...facts }: WelcomeFacts,
): ServerFrameInit {
  const value = {
    ...facts,
    epoch: BigInt(epoch),
    capabilities: [...capabilities],
    serverTimeMs: BigInt(now),
    heartbeatIntervalMs: timing.heartbeatIntervalMs,
    reconnectWindowMs: timing.reconnectWindowMs,
    gatewayId,
  };
  if (trust === null) return { frame: { case: 'welcome', value } };
  return {
    frame: { case: 'welcome', value: { ...value, trust: { body: trust.body, signature: fromBinary(SignatureSchema, trust.signature) } } },
  };
}
