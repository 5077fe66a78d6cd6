/**
 * The part of the api that approvers use. Nothing it answers is believed: sizes are bounded before anything is parsed, forms are checked
 * (document.ts), and what was said about one batch is compared with what it said before (review.ts).
 */
import { fromProblem } from '../../api/problem.ts';
import { maxBatchPayloads, maxLeaves } from '../../domain/batch/limits.ts';
import { ControlError } from '../../domain/errors.ts';
import { reach, toQuery } from '../api-client.ts';
import type { Settings } from '../settings.ts';
import { collectScope } from './collect.ts';
import { type BatchAnswer, type BatchDocument, parseBatch, parseBatches, parsePage } from './document.ts';
import { shown } from './printable.ts';

export interface ApprovalBody {
  readonly kid: string;
  /** base64url */
  readonly sig: string;
}

export interface BatchClient {
  list(query: {
    readonly state?: string | undefined;
    readonly after?: string | undefined;
    readonly limit: number;
  }): Promise<readonly BatchAnswer[]>;
  get(id: string): Promise<BatchAnswer>;
  /** The batch, then every page of its scope. `check` sees the batch before the first page is asked for. */
  collect(id: string, check?: (batch: BatchAnswer) => void): Promise<BatchDocument>;
  create(body: unknown): Promise<unknown>;
  approve(id: string, body: ApprovalBody): Promise<unknown>;
  end(id: string, how: 'cancel' | 'reject', body: { readonly actor: string; readonly reason: string }): Promise<unknown>;
}

/** A page of 8 MiB of payloads in base64, 5,000 leaves around them. */
const longestAnswer = Math.ceil((maxBatchPayloads * 4) / 3) + 4 * 2 ** 20;

export function createBatchClient(settings: Pick<Settings, 'apiUrl' | 'bearer'>): BatchClient {
  const call = async (method: 'GET' | 'POST', path: string, body?: unknown): Promise<unknown> => {
    const url = new URL(path, settings.apiUrl());
    const headers = { authorization: `Bearer ${settings.bearer()}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const response = await reach(url, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const answer = parseJson(await readBounded(response));
    if (response.ok && typeof answer === 'object' && answer !== null) return answer;
    if (response.ok)
      throw new ControlError('INVALID_RESPONSE', `${url.origin} answered something that is not JSON`, { details: { reason: 'not-json' } });
    throw (
      problemOf(answer) ??
      new ControlError('UNAVAILABLE', `${url.origin} answered ${response.status} and is no operator API`, {
        details: { reason: 'not-our-api' },
      })
    );
  };
  const at = (id: string): string => `/v1/batches/${encodeURIComponent(id)}`;
  const get = async (id: string): Promise<BatchAnswer> => parseBatch(await call('GET', at(id)), id);
  return {
    list: async (query) => parseBatches(await call('GET', `/v1/batches?${toQuery(query)}`)),
    get,
    async collect(id, check) {
      const batch = await get(id);
      check?.(batch);
      const leaves = await collectScope(batch, async ({ after, limit }) =>
        parsePage(await call('GET', `${at(id)}/scope?${toQuery({ after: after ?? undefined, limit: Math.min(limit, maxLeaves) })}`)),
      );
      return { batch, leaves };
    },
    create: (body) => call('POST', '/v1/batches', body),
    approve: (id, body) => call('POST', `${at(id)}/approve`, body),
    end: (id, how, body) => call('POST', `${at(id)}/${how}`, body),
  };
}

/** The server's refusal, in its words, which reach a terminal: through the filter, and not endless. */
function problemOf(answer: unknown): ControlError | null {
  const problem = fromProblem(answer);
  if (problem === null) return null;
  const { hint, reason } = problem.details;
  const text = (value: unknown): string => shown(String(value), 400);
  return new ControlError(problem.code, text(problem.message), {
    details: { ...(typeof reason === 'string' ? { reason: text(reason) } : {}), ...(typeof hint === 'string' ? { hint: text(hint) } : {}) },
  });
}

/** @throws INVALID_RESPONSE as soon as it is too long: an endless answer does not fill the memory */
async function readBounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > longestAnswer)
      throw new ControlError('INVALID_RESPONSE', `the answer has more than ${longestAnswer} bytes`, {
        details: { reason: 'answer-too-long' },
      });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
