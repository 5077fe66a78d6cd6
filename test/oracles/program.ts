/** A judge that is a program with tasks: `<program> <task>`, a JSON array of orders in, as many answers out. */
import { spawn } from 'node:child_process';
import type { Judge, MadeChain, Verdict } from './judges.ts';
import type { ChainShape } from './shapes.ts';

export interface Failure {
  readonly error: string;
}

export const isFailure = (answer: unknown): answer is Failure => typeof answer === 'object' && answer !== null && 'error' in answer;

const base64 = (der: Uint8Array): string => Buffer.from(der).toString('base64');
const verdictOf = (answer: unknown): Verdict => (isFailure(answer) ? answer.error : null);

/** A test never waits longer for an answer. */
const answersWithinMs = 50_000;

export class JudgingProgram implements Judge {
  readonly #command: string;
  readonly #args: readonly string[];
  readonly #makes: (chain: ChainShape) => boolean;

  constructor([command, ...args]: readonly [string, ...string[]], makes: (chain: ChainShape) => boolean) {
    this.#command = command;
    this.#args = args;
    this.#makes = makes;
  }

  /** Answers in order; what the program refused is a Failure. Rejects when the program itself fails. */
  ask<Answer>(task: string, orders: readonly unknown[]): Promise<(Answer | Failure)[]> {
    return new Promise((resolve, reject) => {
      const child = spawn(this.#command, [...this.#args, task], { stdio: 'pipe', timeout: answersWithinMs });
      const out: Buffer[] = [];
      let err = '';
      child.stdout.on('data', (data: Buffer) => out.push(data));
      child.stderr.on('data', (data: Buffer) => (err += data.toString()));
      child.stdin.on('error', () => undefined);
      child.on('error', reject);
      child.on('close', (code) => {
        if (code === 0) resolve(JSON.parse(Buffer.concat(out).toString()) as (Answer | Failure)[]);
        else reject(new Error(`${this.#command} ${task} ended with ${code}: ${err}`));
      });
      child.stdin.end(JSON.stringify(orders));
    });
  }

  async verify(chains: Parameters<Judge['verify']>[0]): Promise<Verdict[]> {
    const orders = chains.map(({ leaf, intermediates, anchors, uses, serverName = '' }) => ({
      leaf: base64(leaf),
      intermediates: intermediates.map(base64),
      anchors: anchors.map(base64),
      uses,
      serverName,
      now: Math.floor(Date.now() / 1_000),
    }));
    return (await this.ask('verify', orders)).map(verdictOf);
  }

  async verifyRequests(requests: readonly Uint8Array[]): Promise<Verdict[]> {
    const orders = requests.map((der) => ({ request: base64(der) }));
    return (await this.ask('request', orders)).map(verdictOf);
  }

  makes(chain: ChainShape): boolean {
    return this.#makes(chain);
  }

  async make(chains: readonly ChainShape[]): Promise<MadeChain[]> {
    const made = await this.ask<{ chain: string[]; request: string }>('make', chains);
    return made.map((answer) => {
      if (isFailure(answer)) throw new Error(answer.error);
      return { chain: answer.chain.map((text) => Buffer.from(text, 'base64')), request: Buffer.from(answer.request, 'base64') };
    });
  }
}
