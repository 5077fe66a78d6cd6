/** The routes of tunnels, sandboxes and instances over the database and the key bundle. */
import { ControlError } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import type { PkiBundle } from '../pki/bundle/index.ts';
import { execTicketIssuer, tunnelsOptions } from '../pki/exec/index.ts';
import { spkiPin } from '../pki/x509/index.ts';
import type { Caller } from '../services/callers.ts';
import { execSandbox, type SandboxExecRequest, type SandboxLogin } from '../services/sandboxes.ts';
import { type GrantedTunnel, openTunnel, type TunnelRequest } from '../services/tunnels.ts';
import * as instances from '../services/workload-instances.ts';
import { assertPermission, assertTenantOf, type Permission, type Principal, recordedActorOf } from './principal.ts';

/** Where the caller's program brings the ticket, and whom it believes there. */
export interface TunnelGateway {
  readonly url: string;
  readonly name: string | null;
  readonly servingCaPin: string;
}

export interface OperatorTunnels {
  /** @throws as openTunnel; UNSUPPORTED where the deployment has no tunnels */
  open(
    principal: Principal,
    request: TunnelRequest & { readonly actor?: string | undefined },
  ): Promise<GrantedTunnel & { gateway: TunnelGateway }>;
  /** @throws as execSandbox */
  exec(principal: Principal, request: SandboxExecRequest & { readonly actor?: string | undefined }): Promise<SandboxLogin>;
  /** @throws INVALID_INPUT, CONFLICT */
  place(placement: instances.InstancePlacement): Promise<void>;
  /** False when it did not run there. */
  end(instance: { readonly instanceId: string; readonly nodeId: string }): Promise<boolean>;
  list(page: { readonly after: string; readonly limit: number }): Promise<instances.PlacedInstance[]>;
}

export interface OperatorTunnelsOptions {
  readonly db: Database;
  readonly bundle: () => PkiBundle;
  readonly gateway: { readonly url: string | undefined; readonly name: string | undefined };
  /** BETTER_COMPUTE_TICKET_ISSUER; null: there are no tunnels. */
  readonly ticketIssuer: string | null;
  now(): number;
}

const callerOf = (principal: Principal, permission: Permission, actor: string | undefined): Caller => ({
  name: principal.name,
  actor: recordedActorOf(principal, actor),
  session: principal.session,
  assertMay(tenantId) {
    assertPermission(principal, permission);
    assertTenantOf(principal, tenantId);
  },
});

export function createOperatorTunnels({ db, bundle, gateway, ticketIssuer, now }: OperatorTunnelsOptions): OperatorTunnels {
  const configured = (): { issuer: string; url: string } => {
    if (ticketIssuer !== null && gateway.url !== undefined) return { issuer: ticketIssuer, url: gateway.url };
    const name = ticketIssuer === null ? 'BETTER_COMPUTE_TICKET_ISSUER' : 'BETTER_COMPUTE_GATEWAY_URL';
    throw new ControlError('UNSUPPORTED', `this deployment has no tunnels: ${name} is not set for the api`, {
      details: { reason: 'no-tunnels' },
    });
  };
  return {
    async open(principal, { actor, ...request }) {
      const { issuer, url } = configured();
      const current = bundle();
      const caller = callerOf(principal, 'tunnels.open', actor);
      const granted = await openTunnel({ db, caller, request, issuer: execTicketIssuer(current, { issuer, now }) });
      return { ...granted, gateway: { url, name: gateway.name ?? null, servingCaPin: spkiPin(current.servingCa.certificate.spki) } };
    },
    async exec(principal, { actor, ...request }) {
      const { issuer } = configured();
      const { sandboxSsh } = tunnelsOptions(bundle(), { issuer, now });
      return execSandbox({ db, sandboxSsh, request, caller: callerOf(principal, 'sandboxes.exec', actor) });
    },
    place: (placement) => instances.placeInstance(db, placement, now()),
    end: (instance) => instances.endInstance(db, instance, now()),
    list: (page) => instances.listInstances(db, page),
  };
}
