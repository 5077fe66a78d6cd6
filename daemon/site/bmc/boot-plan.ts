/**
 * What to tell a controller so that its machine boots from somewhere once: decided here, done in boot.ts.
 *
 * The three properties of an override go together (some firmware forgets the mode when it is left out), each to the resource that holds
 * it: a settings object where it has that property, else the system itself. What the machine's power is plays no part (M29).
 */
import { site } from '../../../proto/index.ts';
import { asObject, fieldOf, type Json, textOf, textsOf } from '../redfish/resource.ts';
import type { VendorQuirks } from '../redfish/vendors.ts';

/** The state that is wanted, in the controller's words. */
export interface BootWish {
  readonly enabled: 'Once' | 'Continuous' | 'Disabled';
  /** null: whatever it is, it plays no part. */
  readonly target: string | null;
  /** For HTTP boot where the controller can be told; null: by DHCP. */
  readonly url: string | null;
  readonly notes: readonly string[];
}

/** The Boot object of a system, and of its settings object where it has one. */
export interface BootViews {
  readonly live: Json;
  readonly settings: Json | null;
}

export const bootOf = (body: Json): Json => asObject(fieldOf(body, 'Boot')) ?? {};

interface Asked {
  readonly target: site.BootTarget;
  readonly uefiHttpUrl: string;
}

const cleared: BootWish = Object.freeze({ enabled: 'Disabled', target: null, url: null, notes: [] });

/** undefined for a target that does not exist. */
export function wishOf({ target, uefiHttpUrl }: Asked, views: BootViews, quirks: VendorQuirks): BootWish | undefined {
  const once = (wanted: string, more: Partial<BootWish> = {}): BootWish => ({
    enabled: allows(views, 'BootSourceOverrideEnabled', 'Once') ? 'Once' : 'Continuous',
    target: wanted,
    url: null,
    notes: [],
    ...more,
  });
  switch (target) {
    case site.BootTarget.NONE:
      return cleared;
    case site.BootTarget.NETWORK:
      return once('Pxe');
    case site.BootTarget.HTTP:
      return httpWish(once, { views, url: uefiHttpUrl });
    case site.BootTarget.DISK:
      if (quirks.overrideAfterDeploy) return once('Hdd');
      return { ...cleared, notes: ['no override to the disk on this make: its own order boots it, an override does harm'] };
    case site.BootTarget.MEDIA:
      return once(
        [quirks.mediaTarget, 'Cd', 'UsbCd'].find((name) => allows(views, 'BootSourceOverrideTarget', name)) ?? quirks.mediaTarget,
      );
    case site.BootTarget.UNSPECIFIED:
      return undefined;
    // Of a newer version of the protocol.
    default:
      return undefined;
  }
}

function httpWish(
  once: (wanted: string, more?: Partial<BootWish>) => BootWish,
  { views, url }: { views: BootViews; url: string },
): BootWish {
  if (!allows(views, 'BootSourceOverrideTarget', 'UefiHttp')) {
    return once('Pxe', { notes: ['the controller knows no HTTP boot: the network by PXE instead'] });
  }
  if (holderOf(views, 'HttpBootUri') !== null) return once('UefiHttp', { url });
  return once('UefiHttp', { notes: ['the controller takes no address for HTTP boot: it comes by DHCP'] });
}

/** What is listed as allowed allows nothing else; no list allows everything. */
function allows({ live, settings }: BootViews, property: string, value: string): boolean {
  const lists = [live, settings ?? {}]
    .map((boot) => textsOf(boot, `${property}@Redfish.AllowableValues`))
    .filter((list) => list.length > 0);
  return lists.length === 0 || lists.some((list) => list.includes(value));
}

function holderOf({ live, settings }: BootViews, property: string): 'settings' | 'live' | null {
  if (settings !== null && Object.hasOwn(settings, property)) return 'settings';
  return Object.hasOwn(live, property) ? 'live' : null;
}

/** Whether a Boot object says what is wanted. */
export function holds(boot: Json, { enabled, target, url }: BootWish): boolean {
  const says = textOf(boot, 'BootSourceOverrideEnabled');
  if (enabled === 'Disabled')
    return says === 'Disabled' || (says === '' && ['', 'None'].includes(textOf(boot, 'BootSourceOverrideTarget')));
  if (says !== enabled || textOf(boot, 'BootSourceOverrideTarget') !== target) return false;
  return url === null || textOf(boot, 'HttpBootUri') === url;
}

/** Some controllers show an override in the settings object alone until the next start. */
export const isHeld = ({ live, settings }: BootViews, wish: BootWish): boolean =>
  wish.enabled === 'Disabled' ? holds(live, wish) : holds(live, wish) || (settings !== null && holds(settings, wish));

/** After it was set, a controller that knows no once may show the target for good: it boots from there, and on until it is told otherwise. */
export const isHeldForGood = (views: BootViews, wish: BootWish): boolean =>
  wish.enabled === 'Once' && isHeld(views, { ...wish, enabled: 'Continuous' });

export interface BootPatch {
  readonly to: 'settings' | 'live';
  readonly boot: Json;
}

/** The requests that make it so, in their order. */
export function patchesFor(wish: BootWish, views: BootViews, quirks: VendorQuirks): BootPatch[] {
  const values: Record<string, string> = { BootSourceOverrideEnabled: wish.enabled };
  if (wish.target !== null) values['BootSourceOverrideTarget'] = wish.target;
  if (wish.url !== null) values['HttpBootUri'] = wish.url;
  const mode = textOf(views.live, 'BootSourceOverrideMode') || textOf(views.settings ?? {}, 'BootSourceOverrideMode');
  if (mode !== '' && wish.target !== null) values['BootSourceOverrideMode'] = 'UEFI';
  const first: BootPatch[] = [];
  if (quirks.modeApart && mode !== '' && mode !== 'UEFI' && wish.target !== null) {
    first.push({ to: holderOf(views, 'BootSourceOverrideMode') ?? 'live', boot: { BootSourceOverrideMode: 'UEFI' } });
    delete values['BootSourceOverrideMode'];
  }
  const patches = (['settings', 'live'] as const).map((to) => ({
    to,
    boot: Object.fromEntries(Object.entries(values).filter(([name]) => (holderOf(views, name) ?? homeOf(views)) === to)),
  }));
  return [...first, ...patches.filter(({ boot }) => Object.keys(boot).length > 0)];
}

/** Of a property that nobody shows yet: where the others are. */
const homeOf = (views: BootViews): 'settings' | 'live' => holderOf(views, 'BootSourceOverrideTarget') ?? 'live';
