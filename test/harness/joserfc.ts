/** joserfc, a JOSE library in Python that nobody here wrote, as a judge: it fetches a key set by itself and verifies tokens with it. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

const script = `
import json, sys, urllib.request
from joserfc import jwt
from joserfc.jwk import KeySet

order = json.load(sys.stdin)
keys = KeySet.import_key_set(json.load(urllib.request.urlopen(order["jwks"], timeout=20)))
told = []
for token in order["tokens"]:
    try:
        claims = jwt.decode(token, keys, algorithms=["ES256"])
        registry = jwt.JWTClaimsRegistry(now=order["now"], iss={"essential": True, "value": order["issuer"]}, exp={"essential": True})
        registry.validate(claims.claims)
        told.append({"header": claims.header, "claims": claims.claims})
    except Exception as error:
        told.append({"error": type(error).__name__})
json.dump(told, sys.stdout)
`;

export interface JoserfcOrder {
  /** Where it fetches the keys. */
  readonly jwks: string;
  readonly issuer: string;
  /** Unix seconds. */
  readonly now: number;
  readonly tokens: readonly string[];
}

export type JoserfcVerdict =
  | { readonly header: Record<string, unknown>; readonly claims: Record<string, unknown> }
  | { readonly error: string };

/** Why it cannot judge here; null when it can. */
export async function joserfcIsMissing(): Promise<string | null> {
  try {
    await run('python3', ['-c', 'import joserfc']);
    return null;
  } catch {
    return 'python3 with joserfc is not installed';
  }
}

export async function judgeWithJoserfc(order: JoserfcOrder): Promise<JoserfcVerdict[]> {
  const judged = run('python3', ['-c', script], { maxBuffer: 1_048_576 });
  judged.child.stdin?.end(JSON.stringify(order));
  return JSON.parse((await judged).stdout) as JoserfcVerdict[];
}
