/** What a person says of a new machine, judged field by field before anything is stored; all problems at once. */
import { isNodeId } from '../../domain/commands/ids.ts';
import { type IdentityFact, isLocalMac, normaliseFact, normaliseMac } from '../../domain/metal/identity.ts';
import { isTenantId } from '../tenants.ts';
import type { NewMachine } from './types.ts';

export interface FieldProblem {
  readonly field: keyof NewMachine;
  readonly message: string;
}

/** Escaped and cut: what a file holds goes into a message. */
const shown = (value: string): string =>
  JSON.stringify(value.slice(0, 80)).replaceAll(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

const hostName = /^(?=.{1,253}$)([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$/;

/** Host or address, with a port if need be; IPv6 in brackets. No scheme, no path: the site agent speaks TLS to it. */
export function isControllerAddress(text: string): boolean {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]/@]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535)) return false;
  if (bracketed !== undefined) return URL.canParse(`https://[${bracketed}]/`);
  if (plain === undefined || !hostName.test(plain)) return false;
  // All digits and dots is an address, and then one that exists.
  return !/^[\d.]+$/.test(plain) || isIpv4(plain);
}

const isIpv4 = (text: string): boolean => {
  const parts = text.split('.');
  return parts.length === 4 && parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) <= 255);
};

type Rule = readonly [field: keyof NewMachine, isWrong: (machine: NewMachine) => boolean, message: (machine: NewMachine) => string];

const rules: readonly Rule[] = [
  ['id', ({ id }) => !isNodeId(id), ({ id }) => `${shown(id)} is no machine id: 1 to 63 letters, digits, dots, dashes or underscores`],
  [
    'siteId',
    ({ siteId }) => !isNodeId(siteId),
    ({ siteId }) => `${shown(siteId)} is no site id: 1 to 63 letters, digits, dots, dashes or underscores`,
  ],
  [
    'rack',
    ({ rack = '' }) => !/^[\x21-\x7e]{0,63}$/.test(rack),
    ({ rack = '' }) => `${shown(rack)} is no rack: up to 63 printable characters without a space`,
  ],
  [
    'bmcAddress',
    ({ bmcAddress }) => !isControllerAddress(bmcAddress),
    ({ bmcAddress }) => `${shown(bmcAddress)} is no address of a controller: host or host:port, without https://`,
  ],
  [
    'bmcSystemId',
    ({ bmcSystemId = '' }) => !/^[\x21-\x7e]{0,128}$/.test(bmcSystemId),
    ({ bmcSystemId = '' }) => `${shown(bmcSystemId)} is no id of a system`,
  ],
  [
    'credentialRef',
    ({ credentialRef }) => credentialRef !== undefined && !/^(secret|vault|env):\/\/[\x21-\x7e]{1,256}$/.test(credentialRef),
    () => 'the credential is no reference (secret://, vault:// or env://): a password never stands here',
  ],
  [
    'bmcPinSha256',
    ({ bmcPinSha256 }) => bmcPinSha256 !== undefined && !/^[0-9a-f]{64}$/.test(bmcPinSha256),
    ({ bmcPinSha256 = '' }) => `${shown(bmcPinSha256)} is no pin: 64 lower-case hex digits`,
  ],
  [
    'serial',
    ({ serial }) => serial !== undefined && normaliseFact('inventory-serial', serial) === null,
    ({ serial = '' }) => `${shown(serial)} is no serial number`,
  ],
  [
    'uuid',
    ({ uuid }) => uuid !== undefined && normaliseFact('inventory-uuid', uuid) === null,
    ({ uuid = '' }) => `${shown(uuid)} is no UUID`,
  ],
  [
    'tenantId',
    ({ tenantId }) => tenantId !== undefined && !isTenantId(tenantId),
    ({ tenantId = '' }) => `${shown(tenantId)} is no tenant id`,
  ],
];

export function problemsOfMachine(machine: NewMachine): FieldProblem[] {
  const found = rules.flatMap(([field, isWrong, message]): FieldProblem[] =>
    isWrong(machine) ? [{ field, message: message(machine) }] : [],
  );
  return [...found, ...problemsOfMacs(machine)];
}

function problemsOfMacs({ macAddresses = [] }: NewMachine): FieldProblem[] {
  const seen = new Set<string>();
  return macAddresses.flatMap((text): FieldProblem[] => {
    const mac = normaliseMac(text);
    const problem = (message: string): FieldProblem[] => [{ field: 'macAddresses', message }];
    if (mac === null) return problem(`${shown(text)} is no MAC address of a machine`);
    if (seen.has(mac)) return problem(`${mac} stands twice`);
    seen.add(mac);
    // Its maker gives it to every machine; nothing is matched by it.
    return isLocalMac(mac) ? problem(`${mac} is given by software, not by a maker: it tells machines from nothing`) : [];
  });
}

/** What tells the machine from others, as the inventory has it. Only for a machine without problems. */
export function factsOfMachine({ serial, uuid, macAddresses = [] }: NewMachine): IdentityFact[] {
  const given = [
    ['inventory-serial', serial] as const,
    ['inventory-uuid', uuid] as const,
    ...macAddresses.map((mac) => ['inventory-mac', mac] as const),
  ];
  return given.flatMap(([source, value]) => normaliseFact(source, value) ?? []);
}
