/**
 * Configuration from the environment, parsed once at the edge of each process into a frozen typed object. All problems are
 * reported at once; a BETTER_COMPUTE_ name nobody knows is refused with the nearest known one; values of secrets are never
 * repeated in a message.
 */
import { z } from 'zod';
import { ControlError } from '../domain/errors.ts';
import { productionTimes, type RotationTimes } from '../domain/rotation/gates.ts';
import { envNames, isEnvName, isSecretEnv } from './env-names.ts';
import { nearestName } from './nearest.ts';

const ours = 'BETTER_COMPUTE_';

interface Problem {
  readonly missing: boolean;
  readonly text: string;
}

/**
 * @param schema a zod object whose keys are environment names; use the field helpers below for ports and flags
 * @throws MISSING_ENV when something required is not set and nothing else is wrong, else INVALID_CONFIG; details.problems
 *   lists each problem
 */
export function parseEnv<S extends z.ZodRawShape>(
  schema: z.ZodObject<S>,
  env: NodeJS.ProcessEnv = process.env,
): Readonly<z.infer<z.ZodObject<S>>> {
  // An empty value is what a shell leaves behind when it means "not set".
  const present = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined && value !== ''));
  const parsed = schema.safeParse(present);
  const problems: Problem[] = [
    ...unknownNames(present, schema),
    ...(parsed.success ? [] : parsed.error.issues.map((issue) => describe(issue, present))),
  ];
  if (problems.length > 0 || !parsed.success) throw toError(problems);
  return Object.freeze(parsed.data);
}

function unknownNames(env: Record<string, unknown>, schema: z.ZodObject): Problem[] {
  const known = new Set([...Object.keys(envNames), ...Object.keys(schema.shape)]);
  // Compared without the common prefix, which would make every name look near.
  const tails = [...known].filter((name) => name.startsWith(ours)).map((name) => name.slice(ours.length));
  return Object.keys(env)
    .filter((name) => name.startsWith(ours) && !known.has(name))
    .map((name) => {
      const near = nearestName(name.slice(ours.length), tails);
      return { missing: false, text: `${name} is not a name of this system${near === null ? '' : ` (did you mean ${ours}${near}?)`}` };
    });
}

function describe(issue: z.core.$ZodIssue, env: NodeJS.ProcessEnv): Problem {
  const name = String(issue.path[0] ?? '');
  const value = env[name];
  if (value === undefined) {
    const summary = isEnvName(name) ? ` (${envNames[name]?.summary})` : '';
    return { missing: true, text: `${name} is not set${summary}` };
  }
  const shown = isSecretEnv(name) ? '' : ` "${value}"`;
  return { missing: false, text: `${name}${shown}: ${issue.message}` };
}

function toError(problems: readonly Problem[]): ControlError {
  const texts = problems.map((problem) => problem.text);
  const heading = texts.length === 1 ? '' : `${texts.length} problems in the environment: `;
  const code = problems.every((problem) => problem.missing) ? 'MISSING_ENV' : 'INVALID_CONFIG';
  return new ControlError(code, heading + texts.join('; '), { details: { reason: 'environment', problems: texts } });
}

/** A TCP port; 0 lets the system choose a free one. */
const port = z
  .string()
  .regex(/^\d{1,5}$/, 'must be a port number from 0 to 65535')
  .transform(Number)
  .refine((value) => value <= 65_535, 'must be a port number from 0 to 65535');

export const portField = (byDefault: number) => port.default(byDefault);

/** For what listens only where it is asked to. */
export const optionalPortField = port.optional();

export const hostField = (byDefault = '127.0.0.1') => z.string().min(1).default(byDefault);

/** Milliseconds between two looks; setInterval takes no longer one than 24 days. */
export const intervalField = (byDefault: number) =>
  z
    .string()
    .regex(/^[1-9]\d{0,8}$/, 'must be a number of milliseconds from 1 to 999999999')
    .transform(Number)
    .default(byDefault);

/** on or off. */
export const switchField = (byDefault: boolean) =>
  z
    .enum(['on', 'off'], 'must be "on" or "off"')
    .transform((value) => value === 'on')
    .default(byDefault);

export const logLevelField = z
  .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal'], 'must be trace, debug, info, warn, error or fatal')
  .default('info');

export const demonstrationTimesName = 'BETTER_COMPUTE_DEMONSTRATION_ONLY_ROTATION_TIMES';
const spelledOut = 'yes-for-demonstrations-only:';

/**
 * How long roots overlap: 24 h, unless the environment spells out that this is a demonstration.
 *
 * @throws INVALID_CONFIG when the value is set but not the spelled-out form
 */
export function rotationTimes(env: NodeJS.ProcessEnv = process.env): RotationTimes {
  const value = env[demonstrationTimesName];
  if (value === undefined || value === '') return productionTimes;
  const numbers = value.startsWith(spelledOut) ? value.slice(spelledOut.length).split(',') : [];
  if (numbers.length !== 3 || !numbers.every((n) => /^\d{1,9}$/.test(n) && Number(n) > 0)) {
    throw new ControlError(
      'INVALID_CONFIG',
      `${demonstrationTimesName} "${value}" must be ${spelledOut}<overlapMs>,<marginMs>,<workerLifetimeMs>`,
      {
        details: { reason: 'demonstration-times' },
      },
    );
  }
  const [overlapMs = 0, dropMarginMs = 0, workerLifetimeMs = 0] = numbers.map(Number);
  return Object.freeze({ overlapMs, dropMarginMs, workerLifetimeMs });
}
