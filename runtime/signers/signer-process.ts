/**
 * A key service in a process of its own, spoken to by lines (pki/signers/protocol.ts): a library of a vendor that crashes or hangs
 * takes nothing of ours with it.
 *
 * One process serves all requests. It is started by the first, and killed when a request is given up (nobody knows what it is
 * doing) or when it says something that is not the protocol; the next request starts another. It gets the environment of this
 * process without our own names: no secret of ours reaches it. It ends when its standard input does.
 */
import type { ControlError } from '../../domain/errors.ts';
import { type KeyService, refusalError, refusals, type SignerAnswer, type SignerRequest } from '../../pki/signers/index.ts';
import { SignerChild, type SignerProcessOptions, signerDown } from './signer-child.ts';

export interface SignerProcess extends KeyService {
  /** Ends the process, if one runs. */
  close(): void;
}

export function createSignerProcess(options: SignerProcessOptions): SignerProcess {
  const { name } = options;
  let running: SignerChild | null = null;
  /** A final refusal: asked again, a token would lock. */
  let closedBy: ControlError | null = null;

  const start = (): SignerChild => {
    const child: SignerChild = new SignerChild(options, () => {
      if (running === child) running = null;
    });
    return child;
  };
  const ask = async (request: Omit<SignerRequest, 'id'>, signal: AbortSignal): Promise<SignerAnswer> => {
    if (closedBy !== null) throw closedBy;
    running ??= start();
    const child = running;
    const giveUp = (): void => child.end('was given up because one answer took too long');
    signal.addEventListener('abort', giveUp, { once: true });
    const answer = await child.ask(request).finally(() => signal.removeEventListener('abort', giveUp));
    if (!('error' in answer)) return answer;
    const error = refusalError(name, answer.error);
    if (refusals[answer.error.code].isFinal) closedBy = error;
    throw error;
  };
  const askForKey = async (task: 'public-key' | 'create-key', key: string, signal: AbortSignal): Promise<Uint8Array> => {
    const answer = await ask({ do: task, key }, signal);
    if ('publicKey' in answer) return answer.publicKey;
    throw signerDown(name, 'answered a signature where a public key was asked for');
  };
  return {
    publicKey: (key, signal) => askForKey('public-key', key, signal),
    createKey: (key, signal) => askForKey('create-key', key, signal),
    sign: async ({ key, input }, signal) => {
      const answer = await ask({ do: 'sign', key, input }, signal);
      if ('signature' in answer) return answer.signature;
      throw signerDown(name, 'answered a public key where a signature was asked for');
    },
    close: () => running?.end('was closed'),
  };
}
