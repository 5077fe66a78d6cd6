/**
 * The keys that the bundle only refers to (KEY-039), as doctor asks for them: each signer is asked once for its public key, and signs
 * nothing. A login that a token refused is not tried again.
 */
import { ControlError } from '../../domain/errors.ts';
import type { PublicBundle } from '../../pki/bundle/index.ts';
import type { ExternalSigners } from '../../pki/signers/index.ts';
import { openExternalSigners, readSignerEnvironment } from '../../runtime/signers/external-signers.ts';
import { error, type Finding, messageOf, ok, warning } from './finding.ts';

export interface AskedSigner {
  /** As the bundle calls the key. */
  readonly name: string;
  readonly reference: string;
  /** Of the public half in the bundle. */
  readonly spki: Uint8Array;
  /** The public key it answered, or why it did not. */
  readonly answer: Uint8Array | Error;
  readonly tookMs: number;
}

/** A command waits for its signer; more than this is felt, and is on the way to the deadline. */
export const slowAfterMs = 2_000;

export async function examineSigners(bundle: PublicBundle | null, env: NodeJS.ProcessEnv): Promise<Finding[]> {
  const keys = bundle === null ? [] : keptElsewhere(bundle);
  if (keys.length === 0) return [];
  try {
    const signers = openExternalSigners(readSignerEnvironment(env), env);
    try {
      return judgeSigners(await ask(keys, signers));
    } finally {
      signers.close();
    }
  } catch (cause) {
    return [warning('pki.signer-unasked', `no signer was asked: ${messageOf(cause)}`, 'correct the environment and run doctor again')];
  }
}

type Kept = Pick<AskedSigner, 'name' | 'reference' | 'spki'>;

function keptElsewhere({ rootCa, auditSigning, commandRootsById }: PublicBundle): Kept[] {
  const kept = (name: string, spki: Uint8Array | undefined, reference: string | undefined): Kept[] =>
    reference === undefined || spki === undefined ? [] : [{ name, reference, spki }];
  return [
    ...kept('the root CA', rootCa.certificate.spki, rootCa.signerReference),
    ...kept('the audit key', auditSigning?.spki, auditSigning?.signerReference),
    ...[...commandRootsById.values()].flatMap((root) =>
      kept(`command root ${root.id.slice(0, 12)}`, root.certificate.spki, root.signerReference),
    ),
  ];
}

/** One after the other: a token that is asked at once by two answers both late. */
async function ask(keys: readonly Kept[], signers: Pick<ExternalSigners, 'find'>): Promise<AskedSigner[]> {
  const asked: AskedSigner[] = [];
  for (const key of keys) {
    const begun = performance.now();
    const answer = await signers.find(key.reference).then(
      ({ signer }) => signer.spki,
      (cause: Error) => cause,
    );
    asked.push({ ...key, answer, tookMs: performance.now() - begun });
  }
  return asked;
}

export const judgeSigners = (asked: readonly AskedSigner[]): Finding[] => asked.map(judge);

function judge({ name, reference, spki, answer, tookMs }: AskedSigner): Finding {
  const kept = `${name} is kept by ${reference}`;
  if (answer instanceof Error) return judgeFault(kept, answer);
  if (!Buffer.from(answer).equals(spki)) {
    const fix = 'the reference names another key, or the signer was exchanged: nothing is signed with it';
    return error('pki.signer-wrong-key', `${kept}, which answers another public key than the bundle has`, fix);
  }
  const seconds = (tookMs / 1_000).toFixed(1);
  if (tookMs > slowAfterMs)
    return warning('pki.signer-slow', `${kept}, which took ${seconds} s to answer`, 'look at the load of the token or key service');
  return ok('pki.signer', `${kept}, which answers`);
}

function judgeFault(kept: string, cause: Error): Finding {
  const { reason, variable } = (cause instanceof ControlError ? cause.details : {}) as { reason?: string; variable?: string };
  if (reason === 'signer-not-configured') {
    const fix = `set ${variable} as for the signing worker, and run doctor again`;
    return warning('pki.signer-unasked', `${kept}, and this environment does not know how to ask it`, fix);
  }
  if (reason === 'signer-deadline')
    return error('pki.signer-slow', `${kept}: ${cause.message}`, 'look at the load of the token or key service');
  return error('pki.signer-down', `${kept}: ${cause.message}`, 'start the token or key service; docs/runbooks/keys-in-a-token.md');
}
