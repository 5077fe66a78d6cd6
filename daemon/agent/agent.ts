/** One daemon: what it knows, its link to the gateway and its renewal, started and stopped together. */
import { ControlError, isControlError } from '../../domain/errors.ts';
import type { AttestNextKey } from '../tpm/attest.ts';
import type { ClientIdentity } from '../transport/pinned-connection.ts';
import type { GatewayRoute } from '../transport/wire.ts';
import { type AgentPorts, AgentState } from './agent-state.ts';
import { Link, type LinkPorts } from './link.ts';
import { RenewalLoop, type RenewalLoopPorts } from './renewal-loop.ts';

export interface AgentOptions extends Omit<AgentPorts, 'onFinished' | 'onProgress' | 'onFatal'> {
  readonly readBootId: () => Promise<string>;
  readonly random: () => number;
  /** How the gateway is reached. */
  readonly route: GatewayRoute;
  /** Speaks for the next key at a renewal. */
  readonly attest: AttestNextKey;
  readonly link?: Pick<LinkPorts, 'timing' | 'limits' | 'dialWithinMs'>;
  readonly renewal?: Pick<RenewalLoopPorts, 'lookEveryMs' | 'callWithinMs'>;
}

export type AgentEnd =
  | { readonly kind: 'stopped' }
  /** The gateway will not have this identity again; a person must act. */
  | { readonly kind: 'parked'; readonly error: ControlError }
  /** Nothing can be promised any more: the journal failed. */
  | { readonly kind: 'failed'; readonly error: ControlError };

export interface Agent {
  readonly state: AgentState;
  readonly link: Link;
  readonly renewal: RenewalLoop;
  /** Resolves when it has stopped; what runs gets `graceMs` to end. */
  stop(graceMs: number): Promise<void>;
  readonly ended: Promise<AgentEnd>;
}

/** Starts at once. */
export function startAgent(options: AgentOptions): Agent {
  let failed: ControlError | undefined;
  const state = new AgentState({
    ...options,
    onFinished: (id) => {
      link.current?.sendResult(id);
      void link.current?.admitHeldBack().catch((error: unknown) => options.log.warn({ err: error }, 'held-back command failed'));
    },
    onProgress: (report) => link.current?.progress(report),
    onFatal: (error) => {
      failed ??= isControlError(error) ? error : new ControlError('INTERNAL', 'the executor failed', { cause: error });
      options.log.error({ err: error }, 'cannot go on');
      link.stop();
    },
  });
  const clientIdentity = cachedClientIdentity(options.identity);
  const link = new Link({
    ...options.link,
    state,
    clientIdentity,
    route: options.route,
    readBootId: options.readBootId,
    status: options.status,
    random: options.random,
  });
  const renewal = new RenewalLoop({ ...options.renewal, ...options, clientIdentity, onRenewed: () => link.refresh() });
  renewal.start();
  const ended = link.run().then(async (end): Promise<AgentEnd> => {
    await renewal.stop();
    return failed === undefined ? end : { kind: 'failed', error: failed };
  });
  return {
    state,
    link,
    renewal,
    ended,
    async stop(graceMs) {
      const idle = state.executor.stop(graceMs);
      await idle;
      state.tunnels?.closeAll('stopping');
      link.stop();
      await ended;
      // A disk that fails here loses a minute at most; the end goes on.
      await state.keepTime().catch((error: unknown) => options.log.error({ err: error }, 'what is proven about the time was not kept'));
    },
  };
}

/** The same object for the same certificate: its TLS context is made once. */
function cachedClientIdentity(identity: AgentPorts['identity']): () => ClientIdentity {
  let made: ClientIdentity | undefined;
  return () => {
    const { key, identity: current } = identity.current;
    if (made?.key !== key) made = { key, chain: current.chain };
    return made;
  };
}
