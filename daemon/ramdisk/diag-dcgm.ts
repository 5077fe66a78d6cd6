/** diag.dcgm: NVIDIA's own diagnosis (`dcgmi diag`), in its words. A machine without the tool or a GPU passes only where none is required. */
import { z } from 'zod';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { type DiagDcgm, DiagDcgmReportSchema } from '../../proto/index.ts';
import { type KindHandler, succeeded } from '../kinds/handler.ts';
import type { ProgramEnd } from '../kinds/program.ts';
import type { RamdiskPorts } from './ports.ts';

const result = z.looseObject({ status: z.string().optional(), info: z.unknown().optional(), warnings: z.unknown().optional() });
const test = z.looseObject({ name: z.string(), results: z.array(result).default([]) });
const category = z.looseObject({ category: z.string().optional(), tests: z.array(test).default([]) });
const diagnosis = z.looseObject({ version: z.string().optional(), test_categories: z.array(category).default([]) });
const output = z.looseObject({ 'DCGM Diagnostic': diagnosis.optional(), 'DCGM GPU Diagnostic': diagnosis.optional() });

export function diagDcgmHandler({ disks }: Pick<RamdiskPorts, 'disks'>): KindHandler {
  return {
    async run(payload, { signal }) {
      const { level, required } = payload as DiagDcgm;
      if (level < 1 || level > 3)
        throw new ControlError('INVALID_INPUT', `level is ${level}, it must be 1, 2 or 3`, { details: { reason: 'dcgm-level' } });
      const end = await disks.tool('dcgmi', ['diag', '--run', String(level), '--json'], signal).catch(withoutTool);
      const found = end === null ? null : readDiagnosis(end);
      if (found === null || found.tests.length === 0) {
        if (!required) return succeeded(DiagDcgmReportSchema, { ran: false, version: '', tests: [] });
        const why = end === null ? 'there is no dcgmi' : `dcgmi tested nothing: ${firstLine(end)}`;
        throw new ControlError('UNSUPPORTED', `the diagnosis is required, and ${why}`, { details: { reason: 'no-dcgm' } });
      }
      const answer = { schema: DiagDcgmReportSchema, value: { ran: true, ...found } };
      const failed = found.tests.filter((one) => one.result === 'fail');
      if (failed.length === 0) return { kind: 'succeeded', ...answer };
      const each = failed.map(({ name, detail }) => `${name}: ${detail || 'no reason given'}`).join('; ');
      return {
        kind: 'failed',
        code: 'DIAGNOSIS_FAILED',
        message: `${failed.length} of ${found.tests.length} tests failed: ${each}`,
        answer,
      };
    },
  };
}

function withoutTool(error: unknown): null {
  if (codeOf(error) === 'UNSUPPORTED') return null;
  throw error;
}

const words: Readonly<Record<string, string>> = Object.freeze({ pass: 'pass', warn: 'warn', fail: 'fail', skip: 'skip' });

/** null: no diagnosis in what it said, as on a machine without a GPU. */
function readDiagnosis({ stdout }: ProgramEnd): { version: string; tests: { name: string; result: string; detail: string }[] } | null {
  let json: unknown;
  try {
    json = JSON.parse(stdout);
  } catch {
    return null;
  }
  const parsed = output.safeParse(json);
  const found = parsed.success ? (parsed.data['DCGM Diagnostic'] ?? parsed.data['DCGM GPU Diagnostic']) : undefined;
  if (found === undefined) return null;
  const tests = found.test_categories.flatMap(({ tests: all }) => all.map(({ name, results }) => ({ name, ...worst(results) })));
  return { version: found.version ?? '', tests };
}

/** One result for each GPU: the worst counts. A word that we do not know is a warning, never a pass. */
function worst(results: readonly z.infer<typeof result>[]): { result: string; detail: string } {
  const order = ['fail', 'warn', 'pass', 'skip'];
  const read = results.map(({ status = '', info, warnings }) => ({
    result: words[status.toLowerCase()] ?? 'warn',
    detail: [warnings, info]
      .filter((one) => one !== undefined)
      .map((one) => (typeof one === 'string' ? one : JSON.stringify(one)))
      .join('; ')
      .slice(0, 1000),
  }));
  return read.sort((a, b) => order.indexOf(a.result) - order.indexOf(b.result))[0] ?? { result: 'skip', detail: 'no result' };
}

const firstLine = ({ stderr, stdout, status }: ProgramEnd): string =>
  `status ${status ?? 'none'}, ${(stderr.trim() || stdout.trim()).split('\n')[0]?.slice(0, 200) || 'no word'}`;
