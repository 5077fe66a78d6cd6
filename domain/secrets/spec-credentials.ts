/**
 * The sections of a node's desired state that name a secret for a unit of the machine (SEC-007): `host:<section>` / `<field>` binds it. One row
 * each, the same for who writes the spec and for the daemon that follows it.
 */

export interface SpecCredential {
  /** Of the section in a NodeSpec's JSON. */
  readonly key: string;
  readonly field: string;
  /** For people. */
  readonly what: string;
}

export const specCredentials = Object.freeze({
  'k8s-join': { key: 'k8sJoin', field: 'tokenRef', what: 'the bootstrap token of the unit that joins a Kubernetes cluster' },
  telemetry: { key: 'telemetry', field: 'headersRef', what: 'the headers of the OTLP exporter' },
} as const satisfies Readonly<Record<string, SpecCredential>>);

export type SpecCredentialName = keyof typeof specCredentials;

export const specCredentialNames = Object.freeze(Object.keys(specCredentials) as SpecCredentialName[]);
