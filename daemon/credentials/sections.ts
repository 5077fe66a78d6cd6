/** What becomes of each credential that a NodeSpec names: the file of its unit, one row each. */
import { type SpecCredentialName, specCredentials } from '../../domain/secrets/spec-credentials.ts';
import type { NodeSpec } from '../../proto/index.ts';

export interface CredentialFile {
  /** As status reports and bindings call it. */
  readonly section: SpecCredentialName;
  readonly field: string;
  readonly file: string;
  /** undefined without the section, empty where it names none. */
  refOf(spec: NodeSpec): string | undefined;
}

const rows = {
  'k8s-join': { file: 'k8s-join.token', refOf: ({ k8sJoin }) => k8sJoin?.tokenRef },
  telemetry: { file: 'telemetry.headers', refOf: ({ telemetry }) => telemetry?.headersRef },
} satisfies Readonly<Record<SpecCredentialName, Pick<CredentialFile, 'file' | 'refOf'>>>;

export const credentialFiles: readonly CredentialFile[] = Object.freeze(
  (Object.keys(rows) as SpecCredentialName[]).map((section) => ({ section, field: specCredentials[section].field, ...rows[section] })),
);
