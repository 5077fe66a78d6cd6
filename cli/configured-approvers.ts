/** The approver set that the environment of a command names: the same files, by the same rules, as the api reads at its start. */
import { z } from 'zod';
import type { QuorumFields } from '../pki/trust/index.ts';
import { approverEnv, readApproverFiles } from '../runtime/approver-files.ts';
import { parseEnv } from '../runtime/config.ts';
import { quorumOfFiles } from '../services/approvers.ts';

/** null where it names nobody. @throws MISSING_ENV, INVALID_CONFIG */
export function configuredApprovers(env: NodeJS.ProcessEnv): QuorumFields | null {
  const named = Object.fromEntries(Object.entries(env).filter(([name]) => Object.hasOwn(approverEnv, name)));
  const files = readApproverFiles(parseEnv(z.object(approverEnv), named));
  return files === null ? null : quorumOfFiles(files);
}
