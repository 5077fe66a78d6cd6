/**
 * Whether the address of the workload issuer leads to this deployment (WID-016): relying parties fetch the keys from there, and nothing
 * here would notice when a proxy or a name does not pass them on. Asked as they ask: over the network, without a credential.
 */
import { jwksPath } from '../../pki/workload/index.ts';
import { type Finding, messageOf, ok, warning } from './finding.ts';

type Fetch = (url: string, init: { readonly redirect: 'error'; readonly signal: AbortSignal }) => Promise<Response>;

const withinMs = 5_000;
const fix =
  'let the proxy of that address pass on its two /.well-known paths to the operator port: docs/runbooks/exchange-the-workload-key.md';

/** Nothing where no issuer is configured. */
export async function examineWorkload(env: NodeJS.ProcessEnv, ask: Fetch = fetch): Promise<Finding[]> {
  const issuer = env['BETTER_COMPUTE_WORKLOAD_ISSUER'];
  if (issuer === undefined || issuer === '') return [];
  const url = `${issuer}${jwksPath}`;
  try {
    const response = await ask(url, { redirect: 'error', signal: AbortSignal.timeout(withinMs) });
    const { keys } = (await response.json().catch(() => ({}))) as { keys?: unknown };
    if (response.ok && Array.isArray(keys) && keys.length > 0) return [ok('workload.issuer', `${url} answers ${keys.length} key(s)`)];
    return [warning('workload.unreachable', `${url} answers ${response.status} and no key set: no workload token can be verified`, fix)];
  } catch (cause) {
    return [warning('workload.unreachable', `${url} does not answer: ${messageOf(cause)}`, fix)];
  }
}
