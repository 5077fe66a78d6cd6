/**
 * The one structured log. Lines are JSON on stderr (pretty on a terminal); stdout belongs to data. Every line names its
 * process and, through `child`, the workflow, command and node it is about.
 *
 * Invariant: no secret leaves in a line, at whatever depth it was put in. Two nets, both over the finished line: a value
 * under a key that names a secret, and text that has the shape of one (join tokens, tickets and workload tokens, PEM private keys,
 * passwords in URLs).
 * The nets are the last line of defence, not a licence to log secrets.
 */
import pino, { type DestinationStream, type Logger } from 'pino';
import pretty from 'pino-pretty';

export type Log = Logger;

export interface LoggerOptions {
  readonly process: string;
  readonly level?: string;
  /** Where lines go; stderr by default. */
  readonly destination?: DestinationStream;
}

export function createLogger({ process: name, level = 'info', destination }: LoggerOptions): Log {
  return pino(
    {
      level,
      base: { process: name, pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: pino.stdSerializers.err, err: pino.stdSerializers.err },
      hooks: { streamWrite: withoutSecrets },
    },
    destination ?? defaultDestination(),
  );
}

/** A level to start with; a wrong one is parseEnv's to refuse, and the log that reports it must exist by then. */
export const levelOf = (name: string | undefined): string =>
  name !== undefined && Object.hasOwn(pino.levels.values, name) ? name : 'info';

function defaultDestination(): DestinationStream {
  if (process.stderr.isTTY) return pretty({ destination: 2, sync: true, colorize: true, ignore: 'pid', translateTime: 'SYS:HH:MM:ss.l' });
  return pino.destination({ dest: 2, sync: true });
}

const redacted = '[redacted]';
const suspicious = /secret|token|private|key|pass|authorization|cookie|bcj1\.|bcjoin1\.|eyJ|PRIVATE|:\/\/[^/\s:@]*:[^/\s@]*@/i;
const secretNames =
  /^(?:.*secret|.*token|.*privatekey|.*codeckey|.*signingkey|.*passphrase|.*password|.*authorization|.*cookie|key|passwd)$/;

const secretTexts: readonly [RegExp, string][] = [
  [/bcj(?:oin)?1\.[A-Za-z0-9_-]+/g, redacted],
  // Compact JWS and JWE: exec tickets, workload tokens, and the boxes they come in. Whoever has one may use it.
  [/\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){2,4}/g, redacted],
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, redacted],
  [/(\bBearer\s+)\S+/gi, `$1${redacted}`],
  [/(:\/\/[^/\s:@]*:)[^/\s@]*@/g, `$1${redacted}@`],
];

export const isSecretName = (name: string): boolean => secretNames.test(name.replace(/[^A-Za-z]/g, '').toLowerCase());

/** Cuts what looks like a secret out of a text that is shown or logged. */
export const redactText = (text: string): string => secretTexts.reduce((rest, [shape, instead]) => rest.replace(shape, instead), text);

function withoutSecrets(line: string): string {
  if (!suspicious.test(line)) return line;
  return `${JSON.stringify(redact(JSON.parse(line)))}\n`;
}

function redact(value: unknown): unknown {
  if (typeof value === 'string') return redactText(value);
  if (Array.isArray(value)) return value.map(redact);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [name, isSecretName(name) && inner !== null ? redacted : redact(inner)]),
  );
}
