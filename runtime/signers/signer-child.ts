/** One run of a signer process: lines out, lines in, and whoever still waits when it ends. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { ControlError } from '../../domain/errors.ts';
import { encodeRequest, maxAnswerBytes, oneLine, parseAnswer, type SignerAnswer, type SignerRequest } from '../../pki/signers/index.ts';

export interface SignerProcessOptions {
  /** How messages call it. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

interface Pending {
  readonly resolve: (answer: SignerAnswer) => void;
  readonly reject: (error: ControlError) => void;
}

export const signerDown = (name: string, what: string, cause?: unknown): ControlError =>
  new ControlError('UNAVAILABLE', `${name} ${what}`, { details: { reason: 'signer-down' }, ...(cause === undefined ? {} : { cause }) });

const largestLastWords = 1_000;

export class SignerChild {
  readonly #name: string;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #onEnd: () => void;
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  /** The last it said on its standard error. */
  #lastWords = '';

  /** @param onEnd called once, however it ends */
  constructor({ name, command, args, env }: SignerProcessOptions, onEnd: () => void) {
    this.#name = name;
    this.#onEnd = onEnd;
    this.#child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
    const { stdin, stdout, stderr } = this.#child;
    // Neither the process nor its pipes keep ours alive: a pending request does, by its deadline.
    this.#child.unref();
    for (const pipe of [stdin, stdout, stderr]) (pipe as unknown as Socket).unref();
    stdin.on('error', () => undefined);
    stderr.on('data', (data: Buffer) => {
      this.#lastWords = `${this.#lastWords}${data.toString('utf8')}`.slice(-largestLastWords);
    });
    this.#readLines();
    this.#child.on('error', (cause: NodeJS.ErrnoException) => this.end(`does not start (${cause.code ?? 'unknown fault'})`, cause));
    this.#child.on('close', (code, signal) => {
      const words = this.#lastWords.trim().split('\n').at(-1) ?? '';
      this.end(`ended (${signal ?? `exit code ${code}`})${words === '' ? '' : `: ${oneLine(words)}`}`);
    });
  }

  /** @throws UNAVAILABLE (signer-down) when the process ends first */
  ask(request: Omit<SignerRequest, 'id'>): Promise<SignerAnswer> {
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#child.stdin.write(encodeRequest({ ...request, id }));
    });
  }

  /** Kills it, and everybody who waits is told why. */
  end(what: string, cause?: unknown): void {
    this.#onEnd();
    this.#child.kill('SIGKILL');
    const waiting = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of waiting) reject(signerDown(this.#name, what, cause));
  }

  #readLines(): void {
    let rest = '';
    this.#child.stdout.setEncoding('utf8');
    this.#child.stdout.on('data', (data: string) => {
      const lines = `${rest}${data}`.split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line.trim() !== '') this.#take(line);
      if (rest.length > maxAnswerBytes) this.end('said a line without an end');
    });
  }

  #take(line: string): void {
    try {
      const answer = parseAnswer(line);
      const asked = this.#pending.get(answer.id);
      this.#pending.delete(answer.id);
      asked?.resolve(answer);
    } catch (cause) {
      this.end('said something that is not the protocol', cause);
    }
  }
}
