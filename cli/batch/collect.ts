/** The whole scope of a batch, page by page, from a server that may lie about every one of them (BATCLI-003, BATCLI-005, BATCLI-007). */
import { maxBatchPayloads, maxPageLeaves } from '../../domain/batch/limits.ts';
import { ControlError } from '../../domain/errors.ts';
import type { BatchAnswer, LeafAnswer, PageAnswer } from './document.ts';

export type ReadPage = (request: { readonly after: number | null; readonly limit: number }) => Promise<PageAnswer>;

/**
 * Every leaf that is listed, in the order of the pages. Ends after `size` leaves, whatever a server would go on to list.
 *
 * @throws INVALID_RESPONSE for a page that does not advance, or more payloads than a batch holds; SCOPE_MISMATCH for more leaves than the size
 */
export async function collectScope({ size }: Pick<BatchAnswer, 'size'>, readPage: ReadPage): Promise<readonly LeafAnswer[]> {
  const leaves: LeafAnswer[] = [];
  let after: number | null = null;
  let payloads = 0;
  do {
    const page: PageAnswer = await readPage({ after, limit: maxPageLeaves });
    assertAdvances(page, leaves.at(-1)?.index ?? -1);
    payloads += page.leaves.reduce((sum, { payload }) => sum + Buffer.byteLength(payload?.value ?? '', 'base64'), 0);
    if (payloads > maxBatchPayloads) throw tooMuch();
    leaves.push(...page.leaves);
    if (leaves.length > size) throw scopeMismatch(`more than the ${size} leaves that approvers are asked to sign are listed`);
    after = page.next;
  } while (after !== null);
  return leaves;
}

/** What no batch can hold is not kept until the end. */
const tooMuch = (): ControlError<'INVALID_RESPONSE'> =>
  new ControlError('INVALID_RESPONSE', `the payloads of the scope have more than the ${maxBatchPayloads} bytes of any batch`, {
    details: { reason: 'payloads-too-large' },
  });

function assertAdvances({ leaves, next }: PageAnswer, before: number): void {
  let last = before;
  for (const { index } of leaves) {
    if (index <= last) throw stands(`leaf ${index} is listed after leaf ${last}`);
    last = index;
  }
  if (next === null) return;
  if (leaves.length === 0) throw stands('a page without leaves says that more follow');
  if (next !== last) throw stands(`a page that ends with leaf ${last} goes on after ${next}`);
}

const stands = (what: string): ControlError<'INVALID_RESPONSE'> =>
  new ControlError('INVALID_RESPONSE', `the pages of the scope do not advance: ${what}`, { details: { reason: 'page-does-not-advance' } });

/** One wording for every way in which a control plane describes a scope that is not the one to be signed (BATCLI-006). */
export const scopeMismatch = (what: string): ControlError<'SCOPE_MISMATCH'> =>
  new ControlError('SCOPE_MISMATCH', `the control plane answered two different batches: ${what}`, {
    details: { reason: 'scope-mismatch' },
  });
