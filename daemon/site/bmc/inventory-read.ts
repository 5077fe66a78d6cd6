/**
 * Reads of a controller what an inventory needs and nothing else: one table of sections, each bounded, each allowed to be missing. A whole
 * tree has thousands of resources; this takes some dozen requests.
 */
import { isControlError } from '../../../domain/errors.ts';
import type { RedfishClient, ServiceRoot } from '../redfish/client.ts';
import { findResource, membersOf } from '../redfish/collections.ts';
import { asObject, countOf, type Json, linkAt, listOf, type Resource } from '../redfish/resource.ts';
import { findSystem, resetActionOf } from '../redfish/system.ts';

/** Of one section. */
export const sectionMax = Object.freeze({ interfaces: 64, controllers: 32, drives: 512, firmware: 512, managerInterfaces: 16 });

export interface InventoryRead {
  readonly root: ServiceRoot;
  readonly system: Resource;
  readonly others: readonly Resource[];
  readonly manager: Resource | null;
  readonly resetTypes: readonly string[];
  readonly settingsBoot: Json;
  readonly interfaces: readonly Resource[];
  readonly managerInterfaces: readonly Resource[];
  readonly drives: readonly Resource[];
  readonly firmware: readonly Resource[];
  readonly accountService: Json | null;
  readonly truncated: boolean;
}

export async function readInventory(client: RedfishClient): Promise<InventoryRead> {
  const root = await client.root();
  const { system, others } = await findSystem(client, '');
  const section = new Sections(client);
  const manager = await section.resource(asObject(listOf(system.body, 'Links', 'ManagedBy')[0])?.['@odata.id'], 'manager');
  const settings = await section.resource(linkAt(system.body, '@Redfish.Settings', 'SettingsObject'), 'settings');
  const action = await section.tolerated('reset action', () => resetActionOf(client, system));
  const interfaces = await section.members(linkAt(system.body, 'EthernetInterfaces'), 'interfaces');
  const managerInterfaces = await section.members(linkAt(manager?.body ?? {}, 'EthernetInterfaces'), 'managerInterfaces');
  const drives = await section.drives(linkAt(system.body, 'Storage'));
  const update = await section.resource(linkAt(root.body, 'UpdateService'), 'update service');
  const firmware = await section.members(linkAt(update?.body ?? {}, 'FirmwareInventory'), 'firmware');
  const accounts = await section.resource(linkAt(root.body, 'AccountService'), 'account service');
  return {
    root,
    system,
    others,
    manager,
    resetTypes: action?.allowed ?? [],
    settingsBoot: asObject(settings?.body['Boot']) ?? {},
    interfaces,
    managerInterfaces,
    drives,
    firmware,
    accountService: accounts?.body ?? null,
    truncated: section.truncated,
  };
}

class Sections {
  truncated = false;
  readonly #client: RedfishClient;

  constructor(client: RedfishClient) {
    this.#client = client;
  }

  /** A part that cannot be read is left out and named; a controller that is silent or lets nobody in ends the whole. */
  async tolerated<T>(what: string, read: () => Promise<T>): Promise<T | null> {
    try {
      return await read();
    } catch (error) {
      const ends = !isControlError(error) || error.code === 'UNAUTHENTICATED' || error.code === 'CANCELLED' || this.#client.signal.aborted;
      if (
        ends ||
        (isControlError(error) && ['bmc-unreachable', 'pin-mismatch', 'password-change-required'].includes(String(error.details['reason'])))
      )
        throw error;
      this.#client.note(`${what} could not be read: ${(error as Error).message}`);
      return null;
    }
  }

  async resource(link: unknown, what: string): Promise<Resource | null> {
    if (link === undefined) return null;
    return this.tolerated(what, () => findResource(this.#client, this.#client.path(link, what)));
  }

  async members(link: unknown, what: keyof typeof sectionMax): Promise<readonly Resource[]> {
    if (link === undefined) return [];
    const read = await this.tolerated(what, () => membersOf(this.#client, this.#client.path(link, what), sectionMax[what]));
    this.truncated ||= read?.truncated === true;
    return read?.members ?? [];
  }

  /** The drives of each storage controller, with the controller where it can be expanded. */
  async drives(storage: unknown): Promise<readonly Resource[]> {
    const drives: Resource[] = [];
    for (const controller of await this.members(storage, 'controllers')) {
      const references = listOf(controller.body, 'Drives');
      if (references.length === 0) continue;
      const expanded = await this.#expanded(controller, references);
      for (const reference of expanded) {
        if (drives.length >= sectionMax.drives) {
          this.truncated = true;
          return drives;
        }
        const drive = await this.#drive(reference);
        if (drive !== null && !drives.some(({ path }) => path === drive.path)) drives.push(drive);
      }
    }
    return drives;
  }

  async #expanded({ path }: Resource, references: readonly unknown[]): Promise<readonly unknown[]> {
    const { expandLevels } = await this.#client.root();
    if (expandLevels === 0 || !this.#client.mayExpand || references.length < 2) return references;
    const whole = await this.tolerated('drives', () => this.#client.get(`${path}?$expand=.($levels=1)`));
    const drives = listOf(whole?.body ?? {}, 'Drives');
    return drives.length === references.length ? drives : references;
  }

  async #drive(reference: unknown): Promise<Resource | null> {
    const body = asObject(reference) ?? {};
    if (Object.keys(body).length > 1) return { path: this.#client.path(body['@odata.id'], 'a drive'), body, etag: null };
    return this.resource(body['@odata.id'], 'a drive');
  }
}

/** Failed logins until an account is locked; null where it does not say. */
export const lockoutOf = (accountService: Json | null): number | null =>
  accountService !== null && typeof accountService['AccountLockoutThreshold'] === 'number'
    ? countOf(accountService, 'AccountLockoutThreshold')
    : null;
