/**
 * The gateway's only way to the control plane, as a port: it relays bytes and can forge none (TRN-004, JOIN-021). The wire
 * client is control-plane-client.ts; a process that hosts both roles passes the services themselves.
 */
export interface GatewayServices {
  /** An encoded JoinRequest → an encoded JoinResponse. @throws ControlError */
  join(request: Uint8Array): Promise<Uint8Array>;
  /** An encoded RenewRequest → an encoded RenewResponse. `peer.chain` is what TLS proved: DER, leaf first. @throws ControlError */
  renew(request: Uint8Array, peer: { readonly chain: readonly Uint8Array[] }): Promise<Uint8Array>;
  /**
   * An encoded WorkloadTokenRequest → an encoded WorkloadTokenResponse. Absent where the control plane has no such service
   * (WID-037). @throws ControlError
   */
  workloadToken?(request: Uint8Array, peer: { readonly chain: readonly Uint8Array[] }): Promise<Uint8Array>;
  /**
   * An encoded SecretRequest → an encoded SecretResponse, sealed to the node that asks. Absent where the control plane has no such
   * service. @throws ControlError
   */
  secret?(request: Uint8Array, peer: { readonly chain: readonly Uint8Array[] }): Promise<Uint8Array>;
  /** An encoded EventReport → an encoded EventReceipt. Absent where the control plane takes none. @throws ControlError */
  event?(request: Uint8Array, peer: { readonly chain: readonly Uint8Array[] }): Promise<Uint8Array>;
}
