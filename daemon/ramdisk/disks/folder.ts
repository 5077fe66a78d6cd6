/**
 * A folder of files that behave like disks, for development and demonstrations on a machine whose disks must stay as they are:
 * `<name>.img` holds the bytes, `<name>.json` what the disk says of itself and how its tools behave; `machine.json` is the firmware.
 * Nothing outside of the folder is ever opened or run.
 */
import { readdir, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { ControlError } from '../../../domain/errors.ts';
import { type EraseCapabilities, noEraseCapabilities } from '../../../domain/metal/erase.ts';
import type { ProgramEnd } from '../../kinds/program.ts';
import { hasErrno } from '../../state/files.ts';
import type { DiskFacts, DiskHandle, DiskHost, MachineFacts } from './disk-host.ts';
import { openDisk } from './file-handle.ts';

const toolSchema = z.strictObject({
  /** Exit status. */
  exit: z.number().int().default(0),
  says: z.string().default(''),
  /** Whether the bytes are gone afterwards, whatever the status. */
  erases: z.boolean().default(true),
});

const diskSchema = z.strictObject({
  serial: z.string().default(''),
  wwn: z.string().default(''),
  model: z.string().default('Fake disk'),
  transport: z.string().default('file'),
  rotational: z.boolean().default(false),
  removable: z.boolean().default(false),
  logicalBlockBytes: z.union([z.literal(512), z.literal(4096)]).default(512),
  /** Makes the file where it is missing. */
  sizeBytes: z.number().int().positive().exactOptional(),
  can: z.array(z.enum(Object.keys(noEraseCapabilities) as [keyof EraseCapabilities, ...(keyof EraseCapabilities)[]])).default([]),
  tools: z.record(z.string(), toolSchema).default({}),
  /** Answers every read and write with an error. */
  dead: z.boolean().default(false),
});

type FakeDisk = z.infer<typeof diskSchema>;

const machineSchema = z.strictObject({
  systemUuid: z.string().default(''),
  systemSerial: z.string().default(''),
  macAddresses: z.array(z.string()).default([]),
  memoryBytes: z.number().int().default(0),
  cpus: z.number().int().default(1),
});

/** @throws INVALID_CONFIG naming the file and what is wrong with it, at the first use */
export function folderDisks(folder: string): DiskHost {
  const path = ({ name }: Pick<DiskFacts, 'name'>): string => join(folder, `${name}.img`);
  const read = (name: string): Promise<FakeDisk> => readJson(join(folder, `${name}.json`), diskSchema);
  return {
    path,
    async list() {
      const files = (await readdir(folder))
        .filter((file) => file.endsWith('.json') && file !== 'machine.json' && file !== 'dcgmi.json')
        .sort();
      return Promise.all(files.map((file) => factsOf(file.slice(0, -'.json'.length), { path, read })));
    },
    async open(disk, mode) {
      const { dead } = await read(disk.name);
      return dead ? deadHandle(path(disk)) : openDisk(path(disk), mode);
    },
    async capabilities(disk) {
      const { can } = await read(disk.name);
      return { ...noEraseCapabilities, ...Object.fromEntries(can.map((name) => [name, true])) };
    },
    tool: async (name, args, signal) => {
      signal.throwIfAborted();
      return name === 'dcgmi' ? fakeDcgmi(folder) : fakeEraseTool({ folder, name, args, read });
    },
    partitionsChanged: async () => undefined,
  };
}

export const folderMachine = (folder: string): Promise<MachineFacts> => readJson(join(folder, 'machine.json'), machineSchema);

interface FolderAccess {
  readonly path: (disk: Pick<DiskFacts, 'name'>) => string;
  readonly read: (name: string) => Promise<FakeDisk>;
}

async function factsOf(name: string, { path, read }: FolderAccess): Promise<DiskFacts> {
  const { serial, wwn, model, transport, rotational, removable, logicalBlockBytes, sizeBytes } = await read(name);
  if (sizeBytes !== undefined)
    await writeFile(path({ name }), '', { flag: 'wx' }).then(() => truncate(path({ name }), sizeBytes), ignoreExisting);
  const { size } = await stat(path({ name }));
  return {
    name,
    serial: serial.trim(),
    wwn: wwn.trim().toLowerCase(),
    model: model.trim(),
    sizeBytes: size,
    transport,
    rotational,
    removable,
    logicalBlockBytes,
  };
}

function ignoreExisting(error: unknown): void {
  if (!hasErrno(error, 'EEXIST')) throw error;
}

function deadHandle(path: string): DiskHandle {
  const fail = async (): Promise<never> => {
    throw new ControlError('UNAVAILABLE', `${path}: input/output error`, { details: { reason: 'disk-dead' } });
  };
  return { read: fail, write: fail, sync: fail, close: async () => undefined };
}

/** What a tool changes on its disk; anything that is not here changes nothing, like a format without a secure erase setting. */
const erasing: Readonly<Record<string, RegExp>> = Object.freeze({
  nvme: /^format .*--ses=[12]( |$)/,
  hdparm: /--security-erase(-enhanced)? /,
  blkdiscard: /--secure /,
});

interface ToolCall {
  readonly folder: string;
  readonly name: string;
  readonly args: readonly string[];
  readonly read: (name: string) => Promise<FakeDisk>;
}

async function fakeEraseTool({ folder, name, args, read }: ToolCall): Promise<ProgramEnd> {
  const path = args.find((arg) => arg.startsWith(`${folder}/`) && arg.endsWith('.img'));
  if (path === undefined || !Object.hasOwn(erasing, name))
    throw new ControlError('UNSUPPORTED', `this machine has no ${name}`, { details: { reason: 'no-program' } });
  const disk = await read(path.slice(folder.length + 1, -'.img'.length));
  const { exit, says, erases } = disk.tools[name] ?? toolSchema.parse({});
  if (erases && !disk.dead && erasing[name]?.test(args.join(' ')) === true) await blank(path);
  return { status: exit, stdout: '', stderr: says };
}

async function blank(path: string): Promise<void> {
  const { size } = await stat(path);
  await truncate(path, 0);
  await truncate(path, size);
}

async function fakeDcgmi(folder: string): Promise<ProgramEnd> {
  try {
    return { status: 0, stdout: await readFile(join(folder, 'dcgmi.json'), 'utf8'), stderr: '' };
  } catch (cause) {
    throw new ControlError('UNSUPPORTED', 'this machine has no dcgmi', { cause, details: { reason: 'no-program' } });
  }
}

async function readJson<T>(path: string, schema: z.ZodType<T>): Promise<T> {
  let json: unknown;
  try {
    json = JSON.parse(await readFile(path, 'utf8'));
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', `${path} cannot be read as JSON`, { cause, details: { reason: 'fake-disk' } });
  }
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path: at, message }) => `${at.map(String).join('.') || 'the content'}: ${message}`);
  throw new ControlError('INVALID_CONFIG', `${path}: ${problems.join('; ')}`, { details: { reason: 'fake-disk' } });
}
