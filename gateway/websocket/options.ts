/** What the WebSocket side shares with the gateway it belongs to: types only. */
import type { Signer } from '../../pki/x509/index.ts';
import type { GatewayLog } from '../log.ts';
import type { GatewayMetrics } from '../metrics.ts';
import type { Scheduler } from '../scheduler.ts';
import type { Sessions } from '../session/sessions.ts';
import type { CertificateRef } from '../tls/peer.ts';
import type { TurnQueue } from '../turn-queue.ts';

/** The serving key and its chain (DER, leaf first): what the gateway proves itself with, whatever TLS lies between. */
export interface ServingIdentity {
  readonly signer: Signer;
  readonly chain: readonly Uint8Array[];
}

export interface GatewayWsOptions {
  readonly trustDomain: string;
  /** As of now: both change when certificates are changed. */
  anchors(): readonly Uint8Array[];
  serving(): ServingIdentity;
  isRevoked(certificate: CertificateRef): boolean;
  readonly sessions: Sessions;
  readonly scheduler: Scheduler;
  readonly turns: TurnQueue;
  readonly random: () => number;
  readonly log: GatewayLog;
  readonly metrics: GatewayMetrics;
}
