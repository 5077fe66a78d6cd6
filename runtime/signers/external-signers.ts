/** The signers that this process's environment knows of, behind pki's one port. */
import { createRequire } from 'node:module';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { ControlError } from '../../domain/errors.ts';
import { createExternalSigners, type ExternalSigners, type KeyService, type StartTimer } from '../../pki/signers/index.ts';
import { parseEnv } from '../config.ts';
import { createSignerProcess, type SignerProcess } from './signer-process.ts';

const timeoutProblem = 'must be 1 to 600000 milliseconds';

/** The names of a process that signs with keys outside of its bundle; each reads them with its other names. */
export const signerFields = {
  BETTER_COMPUTE_PKCS11_MODULE: z.string().startsWith('/', 'must be the whole path of a PKCS #11 library').optional(),
  BETTER_COMPUTE_PKCS11_PIN_FILE: z.string().startsWith('/', 'must be the whole path of a file').optional(),
  BETTER_COMPUTE_SIGNER_COMMAND: z.string().startsWith('/', 'must be the whole path of a program').optional(),
  BETTER_COMPUTE_SIGNER_TIMEOUT_MS: z
    .string()
    .regex(/^[1-9]\d{0,5}$/, timeoutProblem)
    .transform(Number)
    .refine((ms) => ms <= 600_000, timeoutProblem)
    .default(10_000),
};

const signerSchema = z.object(signerFields);
export type SignerEnvironment = Readonly<z.output<typeof signerSchema>>;

/** For a process that reads nothing else. @throws INVALID_CONFIG naming every problem */
export const readSignerEnvironment = (env: NodeJS.ProcessEnv): SignerEnvironment => parseEnv(signerSchema, env);

export interface RunningSigners extends ExternalSigners {
  /** Ends the processes that were started. */
  close(): void;
}

const startTimer: StartTimer = (ms, onEnd) => {
  const timer = setTimeout(onEnd, ms);
  return () => clearTimeout(timer);
};

/** Names whose values are this process's own business: ours, and the ways to its Temporal and its database. */
const ownNames = /^(BETTER_COMPUTE_|TEMPORAL_|PG[A-Z]+$)/;

/** @param env what the signer processes inherit, without any name of ours but those they need */
export function openExternalSigners(config: SignerEnvironment, env: NodeJS.ProcessEnv): RunningSigners {
  const foreign = Object.fromEntries(Object.entries(env).filter(([name]) => !ownNames.test(name)));
  const processes = {
    pkcs11: tokenProcess(config, foreign),
    external: programProcess(config, foreign),
  };
  const signers = createExternalSigners({ services: processes, deadline: { ms: config.BETTER_COMPUTE_SIGNER_TIMEOUT_MS, startTimer } });
  return { ...signers, close: () => Object.values(processes).forEach((running) => running.close()) };
}

function tokenProcess(config: SignerEnvironment, env: NodeJS.ProcessEnv): SignerProcess {
  const { BETTER_COMPUTE_PKCS11_MODULE: module, BETTER_COMPUTE_PKCS11_PIN_FILE: pinFile } = config;
  if (module === undefined) return notConfigured('BETTER_COMPUTE_PKCS11_MODULE', 'a key lies in a PKCS #11 token');
  const { command, args } = programOf('pkcs11-main');
  return createSignerProcess({
    name: `the PKCS #11 library ${module}`,
    command,
    args: [...args, module, ...(pinFile === undefined ? [] : [pinFile])],
    env,
  });
}

function programProcess({ BETTER_COMPUTE_SIGNER_COMMAND: command }: SignerEnvironment, env: NodeJS.ProcessEnv): SignerProcess {
  if (command === undefined) return notConfigured('BETTER_COMPUTE_SIGNER_COMMAND', 'a key is kept by a signer program');
  return createSignerProcess({ name: `the signer ${command}`, command, args: [], env });
}

function notConfigured(variable: string, because: string): SignerProcess {
  const refuse = (): Promise<never> =>
    Promise.reject(
      new ControlError('MISSING_ENV', `${because}, and ${variable} is not set`, { details: { reason: 'signer-not-configured', variable } }),
    );
  const service: KeyService = { publicKey: refuse, createKey: refuse, sign: refuse };
  return { ...service, close: () => undefined };
}

/** A program beside this file: compiled when we are, from its source otherwise. */
function programOf(name: string): { command: string; args: string[] } {
  const ending = extname(fileURLToPath(import.meta.url));
  const file = fileURLToPath(new URL(`./${name}${ending}`, import.meta.url));
  return { command: process.execPath, args: ending === '.js' ? [file] : ['--import', createRequire(import.meta.url).resolve('tsx'), file] };
}
