/**
 * Which system of a controller is meant, what it can be told, and how it is. A controller may show several systems (of a GH200 one has
 * the reset action and another the serial number); the one that can be reset is the machine.
 */
import { ControlError } from '../../../domain/errors.ts';
import type { RedfishClient } from './client.ts';
import { membersOf } from './collections.ts';
import { asObject, fieldOf, type Json, linkAt, listOf, type Resource, textOf, textsOf } from './resource.ts';

const systemsMax = 16;

/** @param systemId empty: the one that can be reset. @throws NOT_FOUND (no-system) */
export async function findSystem(client: RedfishClient, systemId: string): Promise<{ system: Resource; others: readonly Resource[] }> {
  const { body } = await client.root();
  const { members } = await membersOf(client, client.path(linkAt(body, 'Systems'), 'its systems'), systemsMax);
  const system = members.find((one) => (systemId === '' ? resetTarget(one.body) !== undefined : textOf(one.body, 'Id') === systemId));
  if (system === undefined) {
    const names = members.map((one) => textOf(one.body, 'Id')).join(', ');
    const what = systemId === '' ? 'no system that can be reset' : `no system "${systemId}"`;
    throw new ControlError('NOT_FOUND', `${client.address.key} has ${what}; it shows: ${names || 'none'}`, {
      details: { reason: 'no-system' },
    });
  }
  return { system, others: members.filter((one) => one !== system) };
}

const resetTarget = (system: Json): unknown => fieldOf(system, 'Actions', '#ComputerSystem.Reset', 'target');

export interface ActionChoice {
  readonly path: string;
  /** null: the controller does not say. */
  readonly allowed: readonly string[] | null;
}

/** Where a system is reset, and what it takes: beside the action, or behind its ActionInfo. @throws UNSUPPORTED (no-reset) */
export async function resetActionOf(client: RedfishClient, system: Resource): Promise<ActionChoice> {
  const action = asObject(fieldOf(system.body, 'Actions', '#ComputerSystem.Reset'));
  if (action === undefined) {
    throw new ControlError('UNSUPPORTED', `${client.address.key}: ${system.path} has no reset action`, { details: { reason: 'no-reset' } });
  }
  const path = client.path(action['target'], 'the reset action');
  return { path, allowed: await allowedValues(client, action, 'ResetType') };
}

export async function allowedValues(client: RedfishClient, action: Json, parameter: string): Promise<readonly string[] | null> {
  const beside = textsOf(action, `${parameter}@Redfish.AllowableValues`);
  if (beside.length > 0) return beside;
  const info = action['@Redfish.ActionInfo'];
  if (info === undefined) return null;
  const { body } = await client.follow(info, 'the description of an action');
  const described = listOf(body, 'Parameters').map(asObject);
  const values = described.find((one) => one?.['Name'] === parameter);
  return values === undefined ? null : textsOf(values, 'AllowableValues');
}

export type ObservedPower = 'on' | 'off' | 'changing' | 'unknown';

/** What controllers say, lower case → what it means. What is not here is unknown, and unknown is never off (M15). */
const powerWords: Readonly<Record<string, ObservedPower>> = Object.freeze({
  on: 'on',
  off: 'off',
  poweringon: 'changing',
  poweringoff: 'changing',
  paused: 'on',
  'chassis power is on': 'on',
  'chassis power is off': 'off',
  'power on': 'on',
  'power off': 'off',
});

export function observedPower(word: unknown): ObservedPower {
  const plain = typeof word === 'string' ? word.trim().toLowerCase() : '';
  return Object.hasOwn(powerWords, plain) ? (powerWords[plain] as ObservedPower) : 'unknown';
}

export interface Observation {
  readonly power: ObservedPower;
  /** In the controller's own clock and words; empty where it does not say. */
  readonly lastReset: string;
  readonly bootProgress: string;
}

export const observe = ({ body }: Resource): Observation => ({
  power: observedPower(fieldOf(body, 'PowerState')),
  lastReset: textOf(body, 'LastResetTime'),
  bootProgress: [textOf(body, 'BootProgress', 'LastState'), textOf(body, 'BootProgress', 'LastStateTime')].join(' ').trim(),
});
