/**
 * The gateway's only way to the control plane (JOIN-021): bytes in, bytes out, relayed as they are. In one process this is
 * createGatewayServices (gateway-services.ts); over the wire it is a client of the api's internal listener.
 */
export interface GatewayPeer {
  /** The chain the peer proved in the TLS handshake: DER, leaf first. */
  readonly chain: readonly Uint8Array[];
}

export interface GatewayServices {
  /** An encoded JoinRequest → an encoded JoinResponse. @throws ControlError */
  join(request: Uint8Array): Promise<Uint8Array>;
  /** An encoded RenewRequest → an encoded RenewResponse. @throws ControlError */
  renew(request: Uint8Array, peer: GatewayPeer): Promise<Uint8Array>;
  /**
   * An encoded WorkloadTokenRequest → an encoded WorkloadTokenResponse. Absent where the control plane has no such service
   * (WID-037). @throws ControlError
   */
  workloadToken?(request: Uint8Array, peer: GatewayPeer): Promise<Uint8Array>;
  /**
   * An encoded SecretRequest → an encoded SecretResponse, sealed to the node that asks. Absent where the control plane has no such
   * service. @throws ControlError
   */
  secret?(request: Uint8Array, peer: GatewayPeer): Promise<Uint8Array>;
  /** An encoded EventReport → an encoded EventReceipt. Absent where the control plane takes none. @throws ControlError */
  event?(request: Uint8Array, peer: GatewayPeer): Promise<Uint8Array>;
}
