/**
 * A deployment in code: everything the options are made of, under one roof (KEY-027 to KEY-035, KEY-047, KEY-048).
 *
 * What it does not do: start processes. Whoever composes their own hands the options to createGatewayServices, createWorkerKeyring
 * and the listeners, as api/main.ts and workers/signing.ts do from the environment.
 */
export { type ExecTicketIssuerOptions, execTicketIssuer, type TunnelsOptions, tunnelsOptions } from '../pki/exec/index.ts';
export { createWorkloadIssuer, type WorkloadIssuer, type WorkloadIssuerOptions } from '../pki/workload/index.ts';
export { defineHost, type Host, type HostOptions } from '../runtime/host.ts';
export { type ApproversOptions, quorumOfOptions } from '../services/approvers.ts';
export { type AuditModule, auditModule } from '../services/audit-module.ts';
export { type AllocationBindingCheck, pkiAllocationBindingCheck } from '../services/capacity/binding-check.ts';
export { activateReservation, createReservation, endReservation, type ReservationView } from '../services/capacity/reservations.ts';
export { createGatewayServices } from '../services/gateway-services.ts';
export { type JoinCrypto, type PkiJoinCryptoOptions, pkiJoinCrypto } from '../services/join-crypto.ts';
export { type SandboxExecOptions, type SandboxGuest, sandboxExecOptions, type VpsModule, vps } from '../services/vps-module.ts';
export {
  type CapacityOptions,
  type DeploymentConfig,
  type DeploymentModule,
  type DeploymentOptions,
  defineConfig,
  type InitialisedOptions,
  initialise,
  loadConfig,
  type PkiOptions,
} from './define-config.ts';
export { defaultBundlePath, loadPkiBundle } from './load-pki-bundle.ts';
