/**
 * bmc.inventory: what a controller knows of its machine. It changes nothing, so it is simply done again after a crash.
 *
 * Everything in the report is a claim of the controller's: texts are trimmed and printable, numbers bounded, and which machine it is stands
 * in facts by source (M60), normalised by the same code that compares them (M62). Serial numbers of parts are no facts of the machine:
 * controllers copy them from one part to another (M59); two disks of one serial number are both listed, and named.
 */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { normaliseFacts, normaliseMac } from '../../../domain/metal/identity.ts';
import { site } from '../../../proto/index.ts';
import { type KindHandler, succeeded } from '../../kinds/handler.ts';
import type { RedfishClient } from '../redfish/client.ts';
import { asObject, countOf, fieldOf, type Json, linkAt, listOf, type Resource, textOf, textsOf } from '../redfish/resource.ts';
import { observedPower } from '../redfish/system.ts';
import type { BmcAccess } from './access.ts';
import { bootOf } from './boot-plan.ts';
import { type InventoryRead, lockoutOf, readInventory } from './inventory-read.ts';
import { wireStates } from './power-states.ts';

export function inventoryHandler(access: BmcAccess): KindHandler {
  return {
    run: (payload, context) =>
      access.run({ target: payload as site.BmcInventory, context, mayMeet: true }, async (client) =>
        succeeded(site.BmcInventoryReportSchema, reportOf(await readInventory(client), client)),
      ),
  };
}

/** What a report says of what was read. */
export function reportOf(
  read: InventoryRead,
  client: Pick<RedfishClient, 'seenPin' | 'requests' | 'notes'>,
): MessageInitShape<typeof site.BmcInventoryReportSchema> {
  const { system, interfaces, drives, firmware } = read;
  const disks = drives.map(diskOf);
  const copied = disks.filter(({ serial }, at) => serial !== '' && disks.findIndex((disk) => disk.serial === serial) !== at);
  const notes = [...client.notes, ...new Set(copied.map(({ serial }) => `several disks say that their serial number is ${serial}`))];
  return {
    pinSha256: client.seenPin ?? '',
    profile: profileOf(read),
    power: wireStates[observedPower(fieldOf(system.body, 'PowerState'))],
    identity: factsOf(read),
    manufacturer: textOf(system.body, 'Manufacturer'),
    model: textOf(system.body, 'Model'),
    serial: textOf(system.body, 'SerialNumber'),
    uuid: textOf(system.body, 'UUID').toLowerCase(),
    memoryBytes: BigInt(Math.round(Math.min(countOf(system.body, 'MemorySummary', 'TotalSystemMemoryGiB'), 2 ** 20) * 2 ** 30)),
    processors: Math.min(Math.round(countOf(system.body, 'ProcessorSummary', 'Count')), 4096),
    interfaces: interfaces.map(({ body }) => ({ id: textOf(body, 'Id'), macAddress: macOf(body), linkStatus: textOf(body, 'LinkStatus') })),
    disks,
    firmware: firmware.map(({ body }) => ({ id: textOf(body, 'Id'), version: textOf(body, 'Version') })),
    requests: client.requests,
    truncated: read.truncated,
    notes,
  };
}

const macOf = (body: Json): string => normaliseMac(textOf(body, 'PermanentMACAddress')) ?? normaliseMac(textOf(body, 'MACAddress')) ?? '';

function diskOf({ body }: Resource) {
  const names = listOf(body, 'Identifiers').map((one) => textOf(asObject(one) ?? {}, 'DurableName'));
  return {
    id: textOf(body, 'Id'),
    serial: textOf(body, 'SerialNumber'),
    model: textOf(body, 'Model'),
    capacityBytes: BigInt(Math.round(countOf(body, 'CapacityBytes'))),
    protocol: textOf(body, 'Protocol'),
    mediaType: textOf(body, 'MediaType'),
    identifier: (names.find((name) => name !== '') ?? '').toLowerCase(),
  };
}

/** Source → where it stands. */
function factsOf({ root, system, others, manager, interfaces, managerInterfaces }: InventoryRead) {
  const at = (source: string, body: Json | undefined, ...path: readonly string[]) => ({ source, value: fieldOf(body ?? {}, ...path) });
  return normaliseFacts([
    at('redfish-system-serial', system.body, 'SerialNumber'),
    // The service tag: what the firmware tells the operating system as the machine's serial number.
    at(root.quirks.serialInSku ? 'redfish-service-tag-serial' : 'redfish-system-sku', system.body, 'SKU'),
    at('redfish-system-uuid', system.body, 'UUID'),
    ...others.flatMap(({ body }) => [at('redfish-baseboard-serial', body, 'SerialNumber'), at('redfish-baseboard-uuid', body, 'UUID')]),
    ...interfaces.map(({ body }) => ({ source: 'redfish-nic-mac', value: macOf(body) })),
    at('redfish-manager-uuid', manager?.body, 'UUID'),
    ...managerInterfaces.map(({ body }) => ({ source: 'redfish-manager-mac', value: macOf(body) })),
  ]);
}

function profileOf({ root, system, manager, resetTypes, settingsBoot, accountService }: InventoryRead) {
  const live = bootOf(system.body);
  const lockout = lockoutOf(accountService);
  const targets = [live, settingsBoot].flatMap((boot) => textsOf(boot, 'BootSourceOverrideTarget@Redfish.AllowableValues'));
  return {
    vendor: root.vendor,
    product: textOf(root.body, 'Product'),
    redfishVersion: textOf(root.body, 'RedfishVersion'),
    systemId: textOf(system.body, 'Id'),
    managerId: textOf(manager?.body ?? {}, 'Id'),
    resetTypes: [...resetTypes],
    bootTargets: [...new Set(targets)],
    httpBootUrl: [live, settingsBoot].some((boot) => Object.hasOwn(boot, 'HttpBootUri')),
    virtualMedia: [system.body, manager?.body ?? {}].some((body) => linkAt(body, 'VirtualMedia') !== undefined),
    lockoutThreshold: lockout ?? 0,
    lockoutKnown: lockout !== null,
  };
}
