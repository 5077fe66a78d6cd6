/**
 * A key service in a process of its own, spoken to by lines (pki/signers/protocol.ts): a library of a vendor that crashes or hangs
 * takes nothing of ours with it.
 *
 * One process serves all requests. It is started by the first, and killed when a request is given up (nobody knows what it is
 * doing) or when it says something that is not the protocol; the next request starts another. It gets the environment of this
 * process without our own names: no secret of ours reaches it. It ends when its standard input does.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { ControlError } from '../../domain/errors.ts';
import {
  encodeRequest,
  type KeyService,
  maxLineBytes,
  oneLine,
  parseAnswer,
  refusalError,
  refusals,
  type SignerAnswer,
  type SignerRequest,
} from '../../pki/signers/index.ts';

export interface SignerProcessOptions {
  /** How messages call it. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

export interface SignerProcess extends KeyService {
  /** Ends the process, if one runs. */
  close(): void;
}

interface Pending {
  readonly resolve: (answer: SignerAnswer) => void;
  readonly reject: (error: ControlError) => void;
}

interface Running {
  readonly child: ChildProcessWithoutNullStreams;
  readonly pending: Map<number, Pending>;
  /** The last it said on its standard error. */
  lastWords: string;
}

const down = (name: string, what: string, cause?: unknown): ControlError =>
  new ControlError('UNAVAILABLE', `${name} ${what}`, { details: { reason: 'signer-down' }, ...(cause === undefined ? {} : { cause }) });

export function createSignerProcess(options: SignerProcessOptions): SignerProcess {
  const { name } = options;
  let running: Running | null = null;
  let lastId = 0;
  /** A final refusal: asked again, a token would lock. */
  let closedBy: ControlError | null = null;

  const end = (which: Running, error: ControlError): void => {
    if (running === which) running = null;
    which.child.kill('SIGKILL');
    for (const { reject } of which.pending.values()) reject(error);
    which.pending.clear();
  };
  const take = (which: Running, line: string): void => {
    try {
      const answer = parseAnswer(line);
      const asked = which.pending.get(answer.id);
      which.pending.delete(answer.id);
      asked?.resolve(answer);
    } catch (cause) {
      end(which, down(name, 'said something that is not the protocol', cause));
    }
  };
  const start = (): Running => {
    const child = spawn(options.command, options.args, { env: options.env, stdio: ['pipe', 'pipe', 'pipe'] });
    const which: Running = { child, pending: new Map(), lastWords: '' };
    // Neither the process nor its pipes keep ours alive: a pending request does, by its deadline.
    child.unref();
    for (const pipe of [child.stdin, child.stdout, child.stderr]) (pipe as unknown as Socket).unref();
    child.stdin.on('error', () => undefined);
    child.stderr.on('data', (data: Buffer) => {
      which.lastWords = `${which.lastWords}${data.toString('utf8')}`.slice(-1_000);
    });
    onLines(child, { take: (line) => take(which, line), tooLong: () => end(which, down(name, 'said a line without an end')) });
    child.on('error', (cause) => end(which, down(name, `does not start (${(cause as NodeJS.ErrnoException).code ?? 'unknown'})`, cause)));
    child.on('close', (code, signal) => {
      const words = which.lastWords.trim().split('\n').at(-1) ?? '';
      end(which, down(name, `ended (${signal ?? `exit code ${code}`})${words === '' ? '' : `: ${oneLine(words)}`}`));
    });
    return which;
  };
  const ask = async (request: Omit<SignerRequest, 'id'>, signal: AbortSignal): Promise<SignerAnswer> => {
    if (closedBy !== null) throw closedBy;
    running ??= start();
    const which = running;
    lastId += 1;
    const id = lastId;
    const answer = await new Promise<SignerAnswer>((resolve, reject) => {
      which.pending.set(id, { resolve, reject });
      signal.addEventListener('abort', () => end(which, down(name, 'was given up because one answer took too long')), { once: true });
      which.child.stdin.write(encodeRequest({ ...request, id }));
    });
    if (!('error' in answer)) return answer;
    const error = refusalError(name, answer.error);
    if (refusals[answer.error.code].isFinal) closedBy = error;
    throw error;
  };
  const askForKey = async (task: 'public-key' | 'create-key', key: string, signal: AbortSignal): Promise<Uint8Array> => {
    const answer = await ask({ do: task, key }, signal);
    if ('publicKey' in answer) return answer.publicKey;
    throw down(name, 'answered a signature where a public key was asked for');
  };
  return {
    publicKey: (key, signal) => askForKey('public-key', key, signal),
    createKey: (key, signal) => askForKey('create-key', key, signal),
    sign: async ({ key, input }, signal) => {
      const answer = await ask({ do: 'sign', key, input }, signal);
      if ('signature' in answer) return answer.signature;
      throw down(name, 'answered a public key where a signature was asked for');
    },
    close: () => {
      if (running !== null) end(running, down(name, 'was closed'));
    },
  };
}

function onLines(
  { stdout }: ChildProcessWithoutNullStreams,
  { take, tooLong }: { take: (line: string) => void; tooLong: () => void },
): void {
  let rest = '';
  stdout.setEncoding('utf8');
  stdout.on('data', (data: string) => {
    const lines = `${rest}${data}`.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') take(line);
    if (rest.length > maxLineBytes) tooLong();
  });
}
