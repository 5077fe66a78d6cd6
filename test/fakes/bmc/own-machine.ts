/**
 * A tree as a machine of its own: what tells it from others (serial numbers, UUIDs, MAC addresses, drives) is laid over what the tree was
 * captured with, so that a rack may hold several of one tree. What was empty there stays empty: a system without a serial number is a case.
 */
import { hasTree, openTree, type Tree } from './trees.ts';
import type { FakeBmcOptions, FakeTree } from './types.ts';

export interface OwnMachine {
  readonly serial: string;
  readonly uuid: string;
  /** Of its first interface, and of no other; its controller's is derived of it. */
  readonly macAddress: string;
}

type Overrides = NonNullable<FakeBmcOptions['overrides']>;
type Laid = [path: string, properties: Readonly<Record<string, unknown>>];

/** Of a rack, tree after tree: those that were captured, or the small one where none of them is here. */
export function treesHere(): readonly FakeTree[] {
  const captured = (['dell_poweredge_r750', 'gh200'] as const).filter(hasTree);
  return captured.length > 0 ? captured : ['minimal'];
}

export function asMachine(name: FakeTree, machine: OwnMachine): Pick<FakeBmcOptions, 'tree' | 'overrides'> {
  const tree = openTree(name);
  return { tree: name, overrides: Object.fromEntries(laidOver(tree, machine)) satisfies Overrides };
}

function laidOver(tree: Tree, machine: OwnMachine): Laid[] {
  const systems = membersOf(tree, '/redfish/v1/Systems');
  const others = systems.filter((path) => path !== tree.system);
  const { EthernetInterfaces: interfaces, Storage: storage } = tree.read(tree.system) ?? {};
  return [
    [tree.system, systemOf(tree, machine)],
    ...others.map((path, at): Laid => [path, { SerialNumber: `${machine.serial}-B${at}`, UUID: derived(machine.uuid, at + 1) }]),
    [tree.manager, { UUID: derived(machine.uuid, 0xff) }],
    ...addresses(membersOf(tree, linkOf(interfaces)), machine.macAddress),
    ...addresses(membersOf(tree, linkOf((tree.read(tree.manager) ?? {})['EthernetInterfaces'])), ofController(machine.macAddress)),
    ...membersOf(tree, linkOf(storage))
      .flatMap((path) => references((tree.read(path) ?? {})['Drives']))
      .map((path, at): Laid => [path, { SerialNumber: `${machine.serial}-D${at}`, Identifiers: [] }]),
  ];
}

/** Where the stock number is the service tag, that one is the serial number which the machine tells its operating system. */
function systemOf(tree: Tree, { serial, uuid }: OwnMachine): Readonly<Record<string, unknown>> {
  const { SerialNumber, SKU, Manufacturer } = tree.read(tree.system) ?? {};
  if (typeof SKU === 'string' && /dell/i.test(String(Manufacturer))) return { SerialNumber: `CN-${serial}`, SKU: serial, UUID: uuid };
  return typeof SerialNumber === 'string' ? { SerialNumber: serial, UUID: uuid } : { UUID: uuid };
}

/** The first has it; the rest has none. */
const addresses = (paths: readonly string[], mac: string): Laid[] =>
  paths.map((path, at) => {
    const own = at === 0 ? mac : null;
    return [path, { MACAddress: own, PermanentMACAddress: own }];
  });

const derived = (uuid: string, by: number): string => `${uuid.slice(0, -4)}${by.toString(16).padStart(2, '0')}${uuid.slice(-2)}`;
const ofController = (mac: string): string => mac.replace(/^((?:..:){3})../, '$1ff');

/** Empty where it is no reference. */
const linkOf = (value: unknown): string => {
  const id = typeof value === 'object' && value !== null ? (value as { '@odata.id'?: unknown })['@odata.id'] : undefined;
  return typeof id === 'string' ? id : '';
};
const references = (value: unknown): string[] => (Array.isArray(value) ? value.map(linkOf) : []);
const membersOf = (tree: Tree, path: string): string[] => (path === '' ? [] : references((tree.read(path) ?? {})['Members']));
