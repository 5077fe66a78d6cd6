/**
 * What each command of a run says, made of what the database knows at the moment of the send. Planned power actions and boot settings have
 * the very bytes of their leaf; everything else names the run and, for the ramdisk, the boot it is meant for, so that one of an earlier boot
 * refuses it (M34). No payload holds a secret.
 */
import { create, type DescMessage, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { ControlError } from '../domain/errors.ts';
import type { ActName } from '../domain/metal/acts.ts';
import { diskAnswer } from '../domain/metal/boot-answers.ts';
import { chooseDisk, type DiskChoice, disksOfRule, type SeenDisk } from '../domain/metal/disks.ts';
import type { Profile } from '../domain/metal/profile.ts';
import { BootKexecSchema, DeployImageSchema, DiagDcgmSchema, DiagDisksSchema, DiskWipeSchema, ImageFormat, site } from '../proto/index.ts';
import { encodePlannedPayload } from '../services/metal/scope.ts';
import { encodeStepPayload } from '../services/metal/step-payloads.ts';
import { isOwnAct, type OwnAct, ownStepOf } from './metal-own-steps.ts';
import type { MetalSigningPorts, RunFacts } from './metal-ports.ts';

export interface Composing {
  readonly facts: RunFacts;
  readonly act: ActName;
  /** Of the planned action, or of the boot; 0 where nothing is counted. */
  readonly ordinal: number;
}

type Ports = Pick<MetalSigningPorts, 'runs' | 'keys' | 'now'>;

/** @returns an encoded google.protobuf.Any @throws INVALID_STATE when the run lacks what the command needs */
export async function composeAct(ports: Ports, composing: Composing): Promise<Uint8Array> {
  const { act, facts } = composing;
  if (!isOwnAct(act)) return composers[act](ports, composing);
  return encodeStepPayload(ownStepOf(facts, composing), { machineId: facts.machine.id, runId: facts.run.id });
}

const packed = <D extends DescMessage>(schema: D, init: MessageInitShape<D>): Uint8Array =>
  toBinary(AnySchema, anyPack(schema, create(schema, init)));

const composers: Readonly<Record<Exclude<ActName, OwnAct>, (ports: Ports, composing: Composing) => Promise<Uint8Array>>> = Object.freeze({
  inventory: async (_ports, { facts: { machine } }) => packed(site.BmcInventorySchema, { nodeId: machine.id, ...controllerOf(machine) }),
  'prepare-boot': prepareBoot,
  'set-boot': async (_ports, composing) => planned(composing, 'bmc.boot'),
  power: async (_ports, composing) => planned(composing, 'bmc.power'),
  'power-off': async (_ports, composing) => planned(composing, 'bmc.power'),
  'read-disks': async (_ports, { facts }) => packed(DiagDisksSchema, bootOf(facts)),
  'diagnose-gpus': async (_ports, { facts }) => {
    const { level, required } = profileOf(facts).diagnose.dcgm ?? { level: 1, required: false };
    return packed(DiagDcgmSchema, { ...bootOf(facts), level, required });
  },
  wipe: async (_ports, { facts }) => packed(DiskWipeSchema, { ...bootOf(facts), ...wipeOf(facts) }),
  deploy,
  start: async (_ports, { facts }) => {
    const { start } = profileOf(facts);
    const target = selectorOf(targetOf(facts));
    return packed(BootKexecSchema, { ...bootOf(facts), target, kernelArgs: start.kernelArgs, reboot: start.by === 'reboot' });
  },
  'clean-up': cleanUp,
  rotate: async ({ keys }, { facts: { run, machine } }) => {
    const { credentialRef, address } = machine.bmc;
    const { nextRef } = await keys.storeNextCredential(run.id);
    const pinSha256 = pinOf(machine.bmc.pinSha256, machine.id);
    return packed(site.BmcRotateSchema, {
      address,
      nodeId: machine.id,
      credentialRef,
      newCredentialRef: nextRef,
      pinSha256,
      runId: run.id,
    });
  },
});

const lacks = (reason: string, message: string): ControlError<'INVALID_STATE'> =>
  new ControlError('INVALID_STATE', message, { details: { reason } });

const controllerOf = ({
  bmc: { address, credentialRef, pinSha256 },
}: RunFacts['machine']): {
  address: string;
  credentialRef: string;
  pinSha256: string;
} => ({ address, credentialRef, pinSha256: pinSha256 ?? '' });

/** A password goes only to a controller whose key is known. */
function pinOf(pinSha256: string | null, machineId: string): string {
  if (pinSha256 !== null) return pinSha256;
  throw lacks('no-pin', `the key of the controller of ${machineId} is not known: inspect the machine first`);
}

function profileOf({ profile, run }: RunFacts): Profile {
  if (profile !== null) return profile;
  throw lacks('no-profile', `run ${run.id} has no profile, which says what it boots and writes`);
}

/** Of the boot whose ramdisk is meant. */
function bootOf({ run, bootEntry }: RunFacts): { runId: string; bootNonce: Uint8Array } {
  if (bootEntry === null) throw lacks('no-ramdisk', `run ${run.id} has not let the machine boot`);
  return { runId: run.id, bootNonce: Buffer.from(bootEntry.bootNonce, 'hex') };
}

function planned({ facts, ordinal }: Composing, kind: 'bmc.power' | 'bmc.boot'): Uint8Array {
  const { run, machine, profile, actions } = facts;
  const action = actions.find((one) => one.kind === kind && one.ordinal === ordinal);
  if (action === undefined) throw lacks('not-planned', `run ${run.id} has planned no ${kind} with the number ${ordinal}`);
  return encodePlannedPayload({ machineId: machine.id, runId: run.id, bmc: machine.bmc, httpUrl: profile?.boot.httpUrl }, action);
}

async function prepareBoot({ keys, now }: Ports, { facts, ordinal }: Composing): Promise<Uint8Array> {
  const { run, machine, macAddresses } = facts;
  const { kernel, initramfs, kernelArgs, discoveryWindowMs } = profileOf(facts).boot;
  if (macAddresses.length === 0)
    throw lacks('no-mac-address', `no MAC address of ${machine.id} is known, by which the boot server would tell it: inspect it first`);
  const entry = await keys.openBootEntry({ runId: run.id, attempt: Math.max(1, ordinal), expiresAt: now() + discoveryWindowMs });
  return packed(site.BootPrepareRamdiskSchema, {
    nodeId: machine.id,
    runId: run.id,
    entryId: entry.entryId,
    macAddresses: [...macAddresses],
    bootNonce: Buffer.from(entry.bootNonce, 'hex'),
    discoveryTokenRef: entry.tokenRef,
    expiresAtMs: BigInt(entry.expiresAt),
    kernel,
    initramfs,
    kernelArgs,
  });
}

async function cleanUp({ runs }: Ports, { facts: { run, machine, macAddresses }, ordinal }: Composing): Promise<Uint8Array> {
  const { remains, deployed } = await runs.standing(run.id);
  const told = diskAnswer({ kind: run.kind, state: machine.state, remains, deployed, number: ordinal });
  const answer = told === 'local' ? site.BootAnswer.LOCAL : site.BootAnswer.HOLD;
  return packed(site.BootCleanUpSchema, { nodeId: machine.id, runId: run.id, macAddresses: [...macAddresses], answer });
}

const seenOf = ({ disks }: RunFacts): SeenDisk[] =>
  disks.map(({ name, serial, wwn, model, sizeBytes, transport, rotational }) => ({
    name,
    serial,
    wwn,
    model,
    sizeBytes,
    transport,
    rotational: rotational === true,
    removable: transport === 'usb',
  }));

const selectorOf = ({ serial, wwn, model, sizeBytes }: DiskChoice): { serial: string; wwn: string; model: string; sizeBytes: bigint } => ({
  serial,
  wwn,
  model,
  sizeBytes: BigInt(sizeBytes),
});

function targetOf(facts: RunFacts): DiskChoice {
  const { disk, pick } = profileOf(facts).deploy;
  const chosen = chooseDisk(seenOf(facts), disk, pick);
  if (chosen.ok) return chosen.choice;
  throw lacks(chosen.reason, `the disk to write to on ${facts.machine.id}: ${chosen.message}`);
}

/** Everything but what the profile keeps; each rule has to mean a disk, or a slip of the pen would erase what was to stay. */
function wipeOf(facts: RunFacts): MessageInitShape<typeof DiskWipeSchema> {
  const { keep, methods, samples } = facts.profile?.wipe ?? { keep: [], methods: [], samples: 0 };
  const disks = seenOf(facts);
  const kept = keep.flatMap((rule) => {
    const found = disksOfRule(disks, rule);
    if (found.length === 0) throw lacks('no-disk', `a disk that is to be kept is not in ${facts.machine.id}: ${JSON.stringify(rule)}`);
    return found.map(selectorOf);
  });
  return { keep: kept, methods: [...methods], samples };
}

async function deploy({ runs, keys }: Ports, { facts }: Composing): Promise<Uint8Array> {
  const { image, growPartition, userDataRef, metaData, networkConfig } = profileOf(facts).deploy;
  const target = selectorOf(targetOf(facts));
  const { remains } = await runs.standing(facts.run.id);
  if (remains !== 'clean')
    throw lacks('not-wiped', `the disks of ${facts.machine.id} are not proven to be erased: nothing is written to them`);
  const { joinRef } = await keys.openProvisionedJoin(facts.run.id);
  return packed(DeployImageSchema, {
    ...bootOf(facts),
    target,
    imageUrl: image.url,
    imageSha256: image.sha256,
    imageBytes: BigInt(image.bytes),
    format: image.format === 'qcow2' ? ImageFormat.QCOW2 : ImageFormat.RAW,
    compression: image.compression,
    growPartition,
    userDataRef,
    metaData: JSON.stringify({ 'instance-id': facts.run.id, 'local-hostname': facts.machine.id, ...metaData }),
    networkConfig,
    joinRef,
  });
}
