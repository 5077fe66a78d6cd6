/** The evidence of every machine: exported by the operator's program, and counted again by the same checks that an auditor makes. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { verifyMetalEvidence } from '../../../../pki/evidence/index.ts';
import type { MachineClient } from '../../../machines/client.ts';
import type { Stack } from '../../stack.ts';
import { runOurs } from '../batch/programs.ts';

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));

export async function checkEvidence(
  { machinesApi, stack }: { machinesApi: MachineClient; stack: Stack },
  machines: readonly string[],
): Promise<{ erased: number; deployed: number; verified: boolean }> {
  const counted = { erased: 0, deployed: 0 };
  for (const machine of machines) {
    const { runs } = await machinesApi.get(machine);
    const newest = runs.find(({ kind }) => kind === 'provision');
    if (newest === undefined) continue;
    const { documents, anchors, trustDomain } = await machinesApi.evidence(newest.id);
    for (const { kind, document, signature } of documents) {
      const evidence = { kind, body: bytes(document), signature: bytes(signature) };
      const { nodeId, shortcomings } = verifyMetalEvidence({ evidence, anchors: anchors.map(bytes), trustDomain });
      if (nodeId !== machine || shortcomings.length > 0) continue;
      counted[kind === 'erase' ? 'erased' : 'deployed'] += 1;
    }
  }
  return { ...counted, verified: await verifiedByProgram(stack, machines[0]) };
}

/** As somebody does it who has only the file. */
async function verifiedByProgram(stack: Stack, machine: string | undefined): Promise<boolean> {
  if (machine === undefined) return false;
  const file = join(stack.home.run, `${machine}-evidence.json`);
  rmSync(file, { force: true });
  await runOurs(stack, ['machine', 'evidence', machine, '--out', file]);
  await runOurs(stack, ['evidence', 'verify', file]);
  return true;
}
