/**
 * The two steps of a run that write to disks, and their evidence: signed by the ramdisk, verified here against the authorities of the key
 * bundle, and stored. Without it the step has failed, whatever its command says of itself.
 */
import { toBinary } from '@bufbuild/protobuf';
import type { ActName } from '../domain/metal/acts.ts';
import { DeployImageResultSchema, DiskWipeResultSchema, type Signed, SignedSchema } from '../proto/index.ts';
import { settled } from './metal-observations.ts';
import type { MetalSigningPorts } from './metal-ports.ts';
import { decoded, failed, type Looking, type Seen } from './metal-seen.ts';

export type ProofName = 'wiped' | 'deployed';

type ProofPorts = Pick<MetalSigningPorts, 'runs' | 'answers' | 'keys'>;

export const proofs: Readonly<Record<ProofName, (ports: ProofPorts, looking: Looking) => Promise<Seen>>> = Object.freeze({
  wiped: (ports, looking) =>
    proven(ports, looking, { act: 'wipe', kind: 'erase', signedOf: (result) => decoded(DiskWipeResultSchema, result).evidence }),
  deployed: (ports, looking) =>
    proven(ports, looking, { act: 'deploy', kind: 'deploy', signedOf: (result) => decoded(DeployImageResultSchema, result).evidence }),
});

interface Proof {
  readonly act: ActName;
  readonly kind: 'erase' | 'deploy';
  readonly signedOf: (result: Uint8Array) => Signed | undefined;
}

/** M49, M50: done is what the evidence proves. */
async function proven({ keys }: ProofPorts, { facts, answer, idOf }: Looking, { act, kind, signedOf }: Proof): Promise<Seen> {
  const result = (await answer(act))?.result;
  const signed = result == null ? undefined : signedOf(result);
  if (signed === undefined) return failed('no-evidence', `${act} ended without evidence`);
  let complete = false;
  const seen = await settled(async () => {
    const input = { runId: facts.run.id, commandId: idOf(act), kind, signed: toBinary(SignedSchema, signed) };
    const stored = await keys.recordEvidence(input);
    complete = stored.complete;
    return stored.summary;
  });
  return seen.kind !== 'reached' || complete ? seen : failed('evidence-incomplete', seen.detail);
}
