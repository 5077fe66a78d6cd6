/**
 * Virtual media (M66): a slot is chosen by what it can do, not by its name; an image is taken out only of a machine that is off, for
 * an operating system that runs from it would break; and nobody's image but the named one is touched.
 */
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import type { RedfishClient } from '../redfish/client.ts';
import { findResource, membersOf } from '../redfish/collections.ts';
import { isRefusal } from '../redfish/refusals.ts';
import { asObject, fieldOf, type Json, linkAt, listOf, type Resource, textOf, textsOf } from '../redfish/resource.ts';
import type { ObservedPower } from '../redfish/system.ts';

export const mediaTimes = Object.freeze({ busyTries: 6, busyEveryMs: 5 * second });

const slotsMax = 16;

export interface MediaWish {
  readonly system: Resource;
  readonly image: string;
  readonly power: ObservedPower;
}

export interface MediaSlot {
  readonly path: string;
  /** null: it is changed by PATCH. */
  readonly insertPath: string | null;
  readonly ejectPath: string | null;
  /** Empty: nothing is in it. */
  readonly image: string;
}

/** Slots for a CD, those with actions first; of them the free ones first. */
export function orderSlots(slots: readonly MediaSlot[]): MediaSlot[] {
  const rank = ({ insertPath, image }: MediaSlot): number => (insertPath === null ? 2 : 0) + (image === '' ? 0 : 1);
  return slots.toSorted((a, b) => rank(a) - rank(b));
}

/** @throws UNSUPPORTED (no-media) when no slot takes it; INVALID_STATE (media-in-use) when all hold other images */
export async function insertMedia(client: RedfishClient, wish: MediaWish): Promise<void> {
  const slots = orderSlots(await slotsOf(client, wish.system));
  if (slots.some(({ image }) => image === wish.image)) return;
  for (const slot of slots) {
    if (slot.image !== '') continue;
    if (await insertInto(client, slot, wish.image)) return;
  }
  const inUse = slots.filter(({ image }) => image !== '').map(({ path }) => path);
  if (inUse.length > 0) {
    throw new ControlError(
      'INVALID_STATE',
      `${client.address.key}: every slot for a CD holds another image (${inUse.join(', ')}): eject one first`,
      {
        details: { reason: 'media-in-use' },
      },
    );
  }
  throw new ControlError('UNSUPPORTED', `${client.address.key} has no slot that takes an image for a CD`, {
    details: { reason: 'no-media' },
  });
}

/** Takes the named image out wherever it is; left in, with a note, while the machine is not seen off. */
export async function ejectMedia(client: RedfishClient, { system, image, power }: MediaWish): Promise<void> {
  for (const slot of await slotsOf(client, system)) {
    if (slot.image !== image) continue;
    if (power !== 'off') {
      client.note(`the image stays in ${slot.path}: the machine is ${power}, and is turned off first`);
      continue;
    }
    await whileBusy(client, () =>
      slot.ejectPath === null ? client.patch(slot.path, { Image: null, Inserted: false }, null) : client.post(slot.ejectPath, {}),
    );
  }
}

async function slotsOf(client: RedfishClient, system: Resource): Promise<MediaSlot[]> {
  const managerLink = asObject(listOf(system.body, 'Links', 'ManagedBy')[0])?.['@odata.id'];
  const manager = managerLink === undefined ? null : await findResource(client, client.path(managerLink, 'its manager'));
  const slots: MediaSlot[] = [];
  for (const holder of [system.body, manager?.body ?? {}]) {
    const link = linkAt(holder, 'VirtualMedia');
    if (link === undefined) continue;
    const { members } = await membersOf(client, client.path(link, 'its virtual media'), slotsMax);
    slots.push(...members.filter(({ body }) => isForCd(body)).map((member) => slotOf(client, member)));
  }
  return slots;
}

const isForCd = (body: Json): boolean => textsOf(body, 'MediaTypes').some((type) => type === 'CD' || type === 'DVD');

function slotOf(client: RedfishClient, { path, body }: Resource): MediaSlot {
  const action = (name: string): string | null => {
    const target = fieldOf(body, 'Actions', `#VirtualMedia.${name}`, 'target');
    return target === undefined ? null : client.path(target, `${name} of ${path}`);
  };
  const image = textOf(body, 'Image');
  return {
    path,
    insertPath: action('InsertMedia'),
    ejectPath: action('EjectMedia'),
    image: fieldOf(body, 'Inserted') === false ? '' : image,
  };
}

/** @returns false when this slot does not do that: the next one may */
async function insertInto(client: RedfishClient, { path, insertPath }: MediaSlot, image: string): Promise<boolean> {
  const insert = (more: Json): Promise<unknown> =>
    insertPath === null
      ? client.patch(path, { Image: image, Inserted: true, WriteProtected: true }, null)
      : client.post(insertPath, { Image: image, ...more });
  try {
    await whileBusy(client, () => insert({}));
  } catch (error) {
    if (isRefusal(error, 'bmc-method')) return false;
    if (!isRefusal(error, 'bmc-parameter') || insertPath === null) throw error;
    // Some want to be told what the address says already.
    await whileBusy(client, () => insert({ TransferProtocolType: image.startsWith('https:') ? 'HTTPS' : 'HTTP' }));
  }
  const after = await client.get(path);
  if (fieldOf(after.body, 'Inserted') !== false) return true;
  throw new ControlError('INVALID_STATE', `${client.address.key} took the image for ${path} and shows the slot empty`, {
    details: { reason: 'media-ignored' },
  });
}

/** The eject before it may still be under way. */
async function whileBusy(client: RedfishClient, request: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await request();
      return;
    } catch (error) {
      const isBusy = isControlError(error) && isRefusal(error, 'bmc-busy', 'bmc-unavailable', 'bmc-conflict');
      if (!isBusy || tries >= mediaTimes.busyTries) throw error;
      await client.sleep(mediaTimes.busyEveryMs);
    }
  }
}
