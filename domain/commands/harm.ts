/**
 * Which commands can destroy work, so that a machine under a quorum runs them only with the approvers' word (DMN-003, DMN-035 to
 * DMN-038). The daemon asks this table of its own, whatever the control plane calls the kind; the server asks the same one.
 *
 * Most kinds are one or the other. A call through a site agent's proxy is a write unless it is a plain read, and then an approval
 * of "any request to this machine" would be one for every write there is: it runs under a leaf bound to its exact bytes only. A call of
 * a plugin is the same: "any method of any plugin" is more than anyone can approve, unless the command says that its method is harmless, which
 * the machine holds against its own manifest before it calls anything (docs/adr/0009, daemon/plugins/judge.ts).
 */
export type Harm =
  | 'none'
  | 'destructive'
  /** Destructive, and only under a leaf that names the exact payload; never outside of a batch. */
  | 'bound-only';

type HarmRule = Harm | ((payload: { readonly method?: unknown; readonly harmless?: unknown }) => Harm);

/** Every kind that is not here does no harm. */
const rules: Readonly<Record<string, HarmRule>> = Object.freeze({
  'node.reboot': 'destructive',
  'bmc.power': 'destructive',
  'bmc.boot': 'destructive',
  'bmc.rotate': 'destructive',
  'disk.wipe': 'destructive',
  'deploy.image': 'destructive',
  'boot.kexec': 'destructive',
  // HEAD and OPTIONS are no readiness polls either: what a BMC does with them is its maker's business.
  'site.httpProxy': ({ method }) => (method === 'GET' ? 'none' : 'bound-only'),
  'driver.invoke': ({ harmless }) => (harmless === true ? 'none' : 'bound-only'),
});

/** @param payload the decoded payload of the signed body */
export function harmOf(kind: string, payload: object): Harm {
  const rule = Object.hasOwn(rules, kind) ? rules[kind] : undefined;
  return typeof rule === 'function' ? rule(payload) : (rule ?? 'none');
}
