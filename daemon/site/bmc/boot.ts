/**
 * bmc.boot: done when it was read back. Setting it twice is setting it once, so after a crash it is simply done again: what holds is
 * left alone, and what does not is set.
 *
 * A controller that takes an override and forgets it is told once more (M27) and then named for what it does. While the firmware starts
 * it refuses changes: six times, five seconds apart (M31).
 */
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import { site } from '../../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from '../../kinds/handler.ts';
import type { RedfishClient } from '../redfish/client.ts';
import { findResource } from '../redfish/collections.ts';
import { isRefusal } from '../redfish/refusals.ts';
import { linkAt, type Resource, textOf } from '../redfish/resource.ts';
import { findSystem, observe } from '../redfish/system.ts';
import { mayHaveArrived } from '../redfish/transport.ts';
import type { BmcAccess } from './access.ts';
import { type BootPatch, type BootViews, type BootWish, bootOf, isHeld, isHeldForGood, patchesFor, wishOf } from './boot-plan.ts';
import { ejectMedia, insertMedia } from './media.ts';
import { sightOf } from './sight.ts';

export const bootTimes = Object.freeze({ refusedTries: 6, refusedEveryMs: 5 * second });

export function bootHandler(access: BmcAccess): KindHandler {
  const run = (payload: site.BmcBoot, context: KindContext): Promise<KindEnd> => {
    assertAsked(payload);
    return access.run({ target: payload, context }, (client) => setBoot(client, payload));
  };
  return {
    run: (payload, context) => run(payload as site.BmcBoot, context),
    recover: (payload, context) => run(payload as site.BmcBoot, context),
  };
}

/** Addresses are handed to firmware as they are: they are judged first. @throws INVALID_INPUT (boot-url) */
function assertAsked({ target, uefiHttpUrl, mediaUrl }: site.BmcBoot): void {
  if (target === site.BootTarget.HTTP) assertUrl(uefiHttpUrl, 'uefi_http_url');
  if (target === site.BootTarget.MEDIA || mediaUrl !== '') assertUrl(mediaUrl, 'media_url');
}

function assertUrl(text: string, field: string): void {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.password === '' && text.length <= 1024) return;
  throw new ControlError('INVALID_INPUT', `${field} is not an http or https address without an account: "${text.slice(0, 80)}"`, {
    details: { reason: 'boot-url', field },
  });
}

async function setBoot(client: RedfishClient, payload: site.BmcBoot): Promise<KindEnd> {
  const { quirks } = await client.root();
  const { system } = await findSystem(client, payload.systemId);
  const power = observe(system).power;
  if (payload.target === site.BootTarget.MEDIA) await insertMedia(client, { system, image: payload.mediaUrl, power });
  else if (payload.mediaUrl !== '') await ejectMedia(client, { system, image: payload.mediaUrl, power });
  const before = await readViews(client, system.path);
  const wish = wishOf(payload, before.views, quirks);
  if (wish === undefined) {
    throw new ControlError('INVALID_INPUT', `there is no boot target ${payload.target}`, { details: { reason: 'boot-target' } });
  }
  for (const note of wish.notes) client.note(note);
  if (isHeld(before.views, wish)) return ended(client, before, { wish, already: true });
  for (let tries = 1; tries <= 2; tries += 1) {
    await apply(client, system.path, wish);
    const read = await readViews(client, system.path);
    const { views } = read;
    if (isHeld(views, wish)) return ended(client, read, { wish, already: false });
    if (isHeldForGood(views, wish)) {
      client.note('the controller keeps the boot override for good where it was asked for it once: it is to be cleared');
      return ended(client, read, { wish, already: false });
    }
    client.note('the controller took the boot override and does not show it: set once more');
  }
  throw new ControlError(
    'INVALID_STATE',
    `${client.address.key} answers that it boots from ${wish.target ?? 'its own order'} ${wish.enabled}, twice, and shows something else`,
    { details: { reason: 'override-ignored' } },
  );
}

interface Read {
  readonly views: BootViews;
  readonly live: Resource;
  readonly settings: Resource | null;
}

async function readViews(client: RedfishClient, path: string): Promise<Read> {
  const live = await client.get(path);
  const link = linkAt(live.body, '@Redfish.Settings', 'SettingsObject');
  const settings = link === undefined ? null : await findResource(client, client.path(link, 'the settings of its system'));
  return { live, settings, views: { live: bootOf(live.body), settings: settings === null ? null : bootOf(settings.body) } };
}

/** Sends what makes it so, again while the controller says not yet. */
async function apply(client: RedfishClient, path: string, wish: BootWish): Promise<void> {
  const { quirks } = await client.root();
  for (let tries = 1; ; tries += 1) {
    const read = await readViews(client, path);
    if (isHeld(read.views, wish)) return;
    try {
      for (const patch of patchesFor(wish, read.views, quirks)) await send(client, read, patch);
      return;
    } catch (error) {
      if (!isNotYet(error) || tries >= bootTimes.refusedTries) throw error;
      client.note(`the controller does not change it yet: ${error.message}`);
      await client.sleep(bootTimes.refusedEveryMs);
    }
  }
}

/** Setting it again does no harm, so an answer that was lost counts among those that say not yet. */
function isNotYet(error: unknown): error is ControlError {
  if (isRefusal(error, 'bmc-in-post', 'bmc-busy', 'bmc-conflict', 'bmc-unavailable')) return true;
  return isRefusal(error, 'bmc-unreachable') && mayHaveArrived(error);
}

async function send(client: RedfishClient, { live, settings }: Read, { to, boot }: BootPatch): Promise<void> {
  const resource = to === 'settings' && settings !== null ? settings : live;
  try {
    await client.patch(resource.path, { Boot: boot }, resource.etag);
  } catch (error) {
    if (!isControlError(error)) throw error;
    const { BootSourceOverrideMode: mode, ...rest } = boot;
    if (isRefusal(error, 'settings-object') && settings !== null && resource !== settings) {
      await client.patch(settings.path, { Boot: boot }, settings.etag);
    } else if (isRefusal(error, 'bmc-parameter') && mode !== undefined && Object.keys(rest).length > 0) {
      client.note(`the controller does not take the boot mode: ${error.message}`);
      await client.patch(resource.path, { Boot: rest }, resource.etag);
    } else throw error;
  }
}

function ended(client: RedfishClient, { views, live }: Read, { wish, already }: { wish: BootWish; already: boolean }): KindEnd {
  const shown =
    views.settings !== null && wish.enabled !== 'Disabled' && textOf(views.live, 'BootSourceOverrideTarget') !== wish.target
      ? views.settings
      : views.live;
  return succeeded(site.BmcBootResultSchema, {
    target: textOf(shown, 'BootSourceOverrideTarget'),
    enabled: textOf(shown, 'BootSourceOverrideEnabled'),
    already,
    notes: [...client.notes],
    seen: sightOf(observe(live)),
  });
}
