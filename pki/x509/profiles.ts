/**
 * What each authority may be and may issue: one row per kind of certificate (KEY-010, JOIN-003, JOIN-004, A-PKI-24). The bounds
 * are enforced when issuing, whatever a caller asks (KEY-012).
 */
import { day, hour } from '../../domain/time.ts';
import { oids } from './oids.ts';
import type { CaProfileName, KeyUsage, LeafProfileName } from './types.ts';

export interface CaProfile {
  readonly kind: CaProfileName;
  /** The CN: an issuer is known by it, so that one authority's key never issues another's certificates (KEY-007, KEY-008). */
  readonly commonName: string;
  readonly maxLifetimeMs: number;
  /** null: none; only the root has intermediates below it. */
  readonly pathLen: number | null;
  readonly keyUsage: readonly KeyUsage[];
  /** Empty: unrestricted. */
  readonly ekus: readonly string[];
  /** null: self-signed. */
  readonly issuedBy: CaProfileName | null;
}

export interface LeafProfile {
  readonly kind: LeafProfileName;
  readonly issuedBy: CaProfileName;
  readonly maxLifetimeMs: number;
  readonly defaultLifetimeMs: number;
  readonly keyUsage: readonly KeyUsage[];
  readonly ekus: readonly string[];
  readonly roles: readonly string[];
  readonly defaultRole: string;
  /** `agent`: a SPIFFE id, then statements. `host`: DNS names and addresses. `none`: no alternative names. */
  readonly names: 'agent' | 'host' | 'none';
}

const authorityUsage: readonly KeyUsage[] = Object.freeze(['keyCertSign', 'cRLSign']);
const leafUsage: readonly KeyUsage[] = Object.freeze(['digitalSignature']);
const client: readonly string[] = Object.freeze([oids.clientAuth]);
const server: readonly string[] = Object.freeze([oids.serverAuth]);
const both: readonly string[] = Object.freeze([oids.serverAuth, oids.clientAuth]);
const unrestricted: readonly string[] = Object.freeze([]);

const year = 365 * day;

const ca = (kind: CaProfileName, rest: Omit<CaProfile, 'kind' | 'keyUsage'>): CaProfile =>
  Object.freeze({ kind, keyUsage: authorityUsage, ...rest });

export const caProfiles: Readonly<Record<CaProfileName, CaProfile>> = Object.freeze({
  rootCa: ca('rootCa', { commonName: 'Better Compute root CA', maxLifetimeMs: 10 * year, pathLen: 1, ekus: unrestricted, issuedBy: null }),
  nodeCa: ca('nodeCa', { commonName: 'Better Compute node CA', maxLifetimeMs: 2 * year, pathLen: 0, ekus: client, issuedBy: 'rootCa' }),
  servingCa: ca('servingCa', {
    commonName: 'Better Compute serving CA',
    maxLifetimeMs: 2 * year,
    pathLen: 0,
    ekus: server,
    issuedBy: 'rootCa',
  }),
  internalCa: ca('internalCa', {
    commonName: 'Better Compute internal CA',
    maxLifetimeMs: 2 * year,
    pathLen: 0,
    ekus: both,
    issuedBy: 'rootCa',
  }),
  // An anchor of its own, not under the root (A-PKI-03): commands do not depend on the TLS hierarchy.
  commandRoot: ca('commandRoot', {
    commonName: 'Better Compute command root',
    maxLifetimeMs: 10 * year,
    pathLen: 0,
    ekus: unrestricted,
    issuedBy: null,
  }),
});

const leaf = (kind: LeafProfileName, rest: Omit<LeafProfile, 'kind' | 'keyUsage'>): LeafProfile =>
  Object.freeze({ kind, keyUsage: leafUsage, ...rest, roles: Object.freeze(rest.roles) });

const agent = (kind: LeafProfileName, role: string, lifetimeMs: number): LeafProfile =>
  leaf(kind, {
    issuedBy: 'nodeCa',
    maxLifetimeMs: lifetimeMs,
    defaultLifetimeMs: lifetimeMs,
    ekus: client,
    roles: [role],
    defaultRole: role,
    names: 'agent',
  });

export const leafProfiles: Readonly<Record<LeafProfileName, LeafProfile>> = Object.freeze({
  // No extended key usage: the role and the root are what makes a command signer (SIGN-005, SIGN-006).
  worker: leaf('worker', {
    issuedBy: 'commandRoot',
    maxLifetimeMs: day,
    defaultLifetimeMs: day,
    ekus: unrestricted,
    roles: ['worker'],
    defaultRole: 'worker',
    names: 'none',
  }),
  node: agent('node', 'node', day),
  site: agent('site', 'site', day),
  ramdisk: agent('ramdisk', 'ramdisk', 2 * hour),
  nodeTenant: agent('nodeTenant', 'node-tenant', day),
  gateway: leaf('gateway', {
    issuedBy: 'servingCa',
    maxLifetimeMs: 90 * day,
    defaultLifetimeMs: 14 * day,
    ekus: server,
    roles: ['gateway'],
    defaultRole: 'gateway',
    names: 'host',
  }),
  internal: leaf('internal', {
    issuedBy: 'internalCa',
    maxLifetimeMs: 30 * day,
    defaultLifetimeMs: 14 * day,
    ekus: both,
    roles: ['internal', 'gateway', 'worker-tls'],
    defaultRole: 'internal',
    names: 'host',
  }),
});

/** The leaf profile of an agent's role. */
export const agentProfiles = Object.freeze({ node: 'node', site: 'site', ramdisk: 'ramdisk', 'node-tenant': 'nodeTenant' } as const);
