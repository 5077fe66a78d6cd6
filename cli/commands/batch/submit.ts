import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { isBatchId } from '../../batch/document.ts';
import { writeSafeJson } from '../../batch/files.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import type { ApprovalFile } from './sign.ts';

export interface BatchSubmitOptions extends CommonOptions {
  readonly files: readonly string[];
}

export function newBatchSubmit(run: (options: BatchSubmitOptions) => Promise<void>): Command {
  const command = new Command('submit')
    .description('Send approvals that batch sign wrote; it holds no key and reviews nothing')
    .argument('<file...>', 'files of batch sign')
    .action((files: string[]) => run({ ...commonOptions(command), files }));
  return withExamples(command, ['better-compute batch submit approval.json', 'better-compute batch submit alice.json bob.json']);
}

/** Every file is read before the first is sent. */
export async function batchSubmitRun({ files, json }: BatchSubmitOptions, ports: Ports): Promise<void> {
  const approvals = files.map((path) => ({ path, ...readApproval(path) }));
  const client = ports.batches();
  for (const { path, batchId, kid, sig } of approvals) {
    const { have, required, released } = ((await client.approve(batchId, { kid, sig })) ?? {}) as {
      have?: unknown;
      required?: unknown;
      released?: unknown;
    };
    if (json) writeSafeJson(ports.io, { batch: batchId, kid, have, required, released });
    else
      ports.io.out(
        `${path}: batch ${batchId} approved by key ${kid.slice(0, 16)}${typeof have === 'number' ? `: ${have} of ${Number(required)} approvals` : ''}`,
      );
  }
}

function readApproval(path: string): Pick<ApprovalFile, 'batchId' | 'kid' | 'sig'> {
  let value: unknown;
  try {
    const bytes = readFileSync(path);
    value = bytes.length > 65_536 ? null : JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw new ControlError('INVALID_INPUT', `${path} is no approval that can be read`, {
      details: { reason: 'bad-approval', path },
      cause,
    });
  }
  const { batchId, kid, sig } = (typeof value === 'object' && value !== null ? value : {}) as Partial<Record<keyof ApprovalFile, unknown>>;
  const isUsable =
    isBatchId(batchId) && typeof kid === 'string' && /^[0-9a-f]{64}$/.test(kid) && typeof sig === 'string' && isSignature(sig);
  if (isUsable) return { batchId, kid, sig };
  throw new ControlError('INVALID_INPUT', `${path} is no approval of batch sign: it has no batchId, kid and sig of 64 bytes`, {
    details: { reason: 'bad-approval', path },
  });
}

const isSignature = (sig: string): boolean => {
  const bytes = Buffer.from(sig, 'base64url');
  return bytes.length === 64 && bytes.toString('base64url') === sig;
};
