/**
 * Reading profiles (profiles/*.yaml): the form of the file. What a profile means is domain/metal/profile.ts. Every problem is told at once,
 * with its line and field, and a profile with one is not used at all.
 */
import { z } from 'zod';
import { ControlError } from '../../domain/errors.ts';
import { type Profile, problemsOfProfile } from '../../domain/metal/profile.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import { provisionStepNames } from '../../domain/metal/steps.ts';
import { day, hour, minute, second } from '../../domain/time.ts';
import type { TextProblem } from './types.ts';
import { inOrder, pathText, readYaml, showProblems } from './yaml-text.ts';

const units: Readonly<Record<string, number>> = { s: second, m: minute, h: hour };

/** `90s`, `20m`, `2h`. */
const duration = (least: number, most: number) =>
  z
    .string()
    .regex(/^[1-9]\d{0,5}[smh]$/, 'is no duration: write 90s, 20m or 2h')
    .transform((text) => Number(text.slice(0, -1)) * (units[text.slice(-1)] as number))
    .refine((ms) => ms >= least && ms <= most, `is not between ${least / second}s and ${most / second}s`);

const sizeUnits: Readonly<Record<string, number>> = { '': 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** `480GiB`, or a number of bytes. */
const size = z.union([z.number(), z.string()]).transform((given, context): number => {
  const [, digits, unit = ''] = /^(\d{1,15})(KiB|MiB|GiB|TiB)?$/.exec(String(given)) ?? [];
  const bytes = digits === undefined ? Number.NaN : Number(digits) * (sizeUnits[unit] as number);
  if (Number.isSafeInteger(bytes)) return bytes;
  context.addIssue({ code: 'custom', message: `${JSON.stringify(given)} is no size: write 480GiB, or a number of bytes` });
  return z.NEVER;
});

const text = (longest: number) => z.string().max(longest, `is longer than ${longest} characters`);
const filled = (longest: number) => text(longest).min(1, 'is empty');
const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'is no SHA-256: 64 lower-case hex digits');
const word = z
  .string()
  .regex(/^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$/, 'is no name: lower-case letters, digits, dots and dashes, at most 64');
const artefact = z.strictObject({
  name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, "is no file name of the boot server's folder"),
  sha256,
});
const notUrl = 'is no http or https address without user and password';
const url = text(2_048).refine(isUrl, notUrl);
const secretRef = z
  .string()
  .regex(/^(secret|vault|env):\/\/[\x21-\x7e]{1,256}$/, 'is no reference to a secret: secret://, vault:// or env://');

function isUrl(value: string): boolean {
  const parsed = URL.canParse(value) ? new URL(value) : null;
  return parsed !== null && /^https?:$/.test(parsed.protocol) && parsed.username === '' && parsed.password === '';
}

const diskRule = z.strictObject({
  serial: filled(128).optional(),
  wwn: filled(128).optional(),
  model: filled(128).optional(),
  transport: z.enum(['nvme', 'sata', 'sas', 'virtio', 'usb', 'file']).optional(),
  rotational: z.boolean().optional(),
  minBytes: size.optional(),
  maxBytes: size.optional(),
});

const boot = z
  .strictObject({
    kernel: artefact,
    initramfs: artefact,
    kernelArgs: text(1_024)
      .regex(/^[\x20-\x7e]*$/, 'holds characters that a kernel command line cannot')
      .default(''),
    graceful: z.boolean().default(true),
    httpUrl: url.optional(),
    bootTime: duration(second, 2 * hour).default(10 * minute),
    discoveryWindow: duration(second, day).default(hour),
  })
  .transform(({ bootTime, discoveryWindow, ...rest }) => ({ ...rest, bootTimeMs: bootTime, discoveryWindowMs: discoveryWindow }));

const dcgm = z.strictObject({ level: z.union([z.literal(1), z.literal(2), z.literal(3)]), required: z.boolean().default(false) });

const image = z.strictObject({
  url,
  sha256,
  bytes: size.default(0),
  format: z.enum(['raw', 'qcow2']).default('raw'),
  compression: z.enum(['none', 'gzip', 'zstd']).default('none'),
});

const deploy = z
  .strictObject({
    image,
    disk: diskRule,
    pick: z.enum(['only', 'smallest', 'lowest-serial']).default('only'),
    growPartition: z.int().min(0).max(128).default(0),
    userData: secretRef.optional(),
    metaData: z.record(z.string(), z.json()).default({}),
    networkConfig: text(65_536).default(''),
  })
  .transform(({ userData = '', ...rest }) => ({ ...rest, userDataRef: userData }));

const start = z
  .strictObject({
    by: z.enum(['kexec', 'reboot']).default('kexec'),
    joinWithin: duration(second, 6 * hour).default(20 * minute),
    kernelArgs: text(1_024)
      .regex(/^[\x20-\x7e]*$/, 'holds characters that a kernel command line cannot')
      .default(''),
  })
  .transform(({ joinWithin, ...rest }) => ({ ...rest, joinWithinMs: joinWithin }));

const stepFields = z.strictObject({ name: word, after: word, sends: z.array(z.string()).max(16).optional() });

/** Of what goes to a web server, in the place of the machine's id and the run's. */
const template = text(2_048).refine((given) => isUrl(given.replaceAll('{machine}', 'm').replaceAll('{run}', 'r')), notUrl);

const header = z.strictObject({
  name: z.string().regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/, 'is no name of a header'),
  value: text(8_192)
    .regex(/^[\t\x20-\x7e]*$/, 'holds characters that no header has')
    .optional(),
  valueRef: secretRef.optional(),
});

const doing = z.strictObject({
  'driver.invoke': z
    .strictObject({
      plugin: z.string(),
      manifestSha256: sha256,
      method: z.string(),
      input: z.string().default(''),
      harmless: z.boolean().default(false),
    })
    .optional(),
  'site.httpProxy': z
    .strictObject({
      method: z.enum(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']),
      url: template,
      headers: z.array(header).max(32).default([]),
      body: z.string().default(''),
      pinSha256: z.union([sha256, z.literal('')]).default(''),
      expect: z.array(z.int().min(100).max(599)).max(16).default([]),
    })
    .optional(),
  'service.restart': z
    .strictObject({ unit: z.string().regex(/^[A-Za-z0-9_@:][A-Za-z0-9_.@:\\-]{0,254}$/, 'is no name of a systemd unit') })
    .optional(),
  'node.reboot': z.strictObject({ reason: filled(500) }).optional(),
});

const profile = z.strictObject({
  name: word,
  description: text(500).default(''),
  boot,
  diagnose: z.strictObject({ dcgm: dcgm.optional() }).default({}),
  wipe: z
    .strictObject({
      keep: z.array(diskRule).max(64).default([]),
      methods: z.array(word).max(16).default([]),
      samples: z.int().min(1, 'is less than 1: an erasure that nothing is read back of is not proven').max(4_096).default(64),
    })
    .default({ keep: [], methods: [], samples: 64 }),
  deploy,
  start: start.prefault({}),
  steps: z
    .array(
      stepFields
        .extend({ within: duration(second, 6 * hour).optional(), do: doing })
        .transform(({ within: withinMs, ...rest }) => ({ ...rest, ...(withinMs === undefined ? {} : { withinMs }) })),
    )
    .max(16)
    .default([]),
});

export interface ReadProfile {
  /** null when there are problems. */
  readonly profile: Profile | null;
  readonly problems: readonly TextProblem[];
}

/** Everything that is wrong with a profile's text, or the profile. Never throws. */
export function readProfileText(yaml: string): ReadProfile {
  const { value, problems, lineOf } = readYaml(yaml, profile);
  if (value === null) return { profile: null, problems };
  const meant = problemsOfProfile(value, provisionStepNames).map(({ path, message }) => ({
    line: lineOf(path),
    field: pathText(path),
    message,
  }));
  return meant.length > 0 ? { profile: null, problems: inOrder(meant) } : { profile: value, problems: [] };
}

/** @param name of the file, for the message. @throws INVALID_INPUT with every problem, and `details.problems` */
export function parseProfileText(yaml: string, name: string): Profile {
  const { profile: read, problems } = readProfileText(yaml);
  if (read !== null) return read;
  throw new ControlError('INVALID_INPUT', `profile ${name} cannot be used:\n${showProblems(problems)}`, {
    details: { reason: 'bad-profile', problems },
  });
}

const ms = (most: number) => z.number().int().positive().max(most);

/** A profile as it was read before: as JSON, with its durations in milliseconds. */
const parsedForm = z.strictObject({
  name: word,
  description: text(500),
  boot: z.strictObject({
    kernel: artefact,
    initramfs: artefact,
    kernelArgs: text(1_024),
    graceful: z.boolean(),
    httpUrl: url.optional(),
    bootTimeMs: ms(2 * hour),
    discoveryWindowMs: ms(day),
  }),
  diagnose: z.strictObject({ dcgm: dcgm.optional() }),
  wipe: z.strictObject({ keep: z.array(diskRule).max(64), methods: z.array(word).max(16), samples: z.int().min(1).max(4_096) }),
  deploy: z.strictObject({
    image,
    disk: diskRule,
    pick: z.enum(['only', 'smallest', 'lowest-serial']),
    growPartition: z.int().min(0).max(128),
    userDataRef: z.union([secretRef, z.literal('')]),
    metaData: z.record(z.string(), z.json()),
    networkConfig: text(65_536),
  }),
  start: z.strictObject({ by: z.enum(['kexec', 'reboot']), joinWithinMs: ms(6 * hour), kernelArgs: text(1_024) }),
  steps: z.array(stepFields.extend({ withinMs: ms(6 * hour).optional(), do: doing })).max(16),
});

/**
 * A profile that came through somebody's hands since it was read: a workflow's input, a row.
 *
 * @param kind of the run that it is for: its own steps are a provision run's, and what none does keeps no machine from being retired
 * @throws INVALID_INPUT with every problem
 */
export function assertProfile(value: unknown, kind: RunKind): Profile {
  const judged = parsedForm.safeParse(value);
  const problems = judged.success
    ? problemsOfProfile(kind === 'provision' ? judged.data : { ...judged.data, steps: [] }, provisionStepNames).map(
        ({ path, message }) => `${pathText(path)}: ${message}`,
      )
    : judged.error.issues.map(({ path, message }) => `${pathText(path)}: ${message}`);
  if (judged.success && problems.length === 0) return judged.data;
  throw new ControlError('INVALID_INPUT', `the profile cannot be used: ${problems.slice(0, 20).join('; ')}`, {
    details: { reason: 'bad-profile', problems },
  });
}
