/** Feeds the session state machine frame by frame and writes down what it asks for. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { ServerFrameInit, SessionEffects, SessionTerms } from '../../gateway/session/contract.ts';
import { SessionCore } from '../../gateway/session/core.ts';
import type { HelloFacts } from '../../gateway/session/read-frames.ts';
import { type AgentFrame, AgentFrameSchema, encodeMessage, type ServerFrame, ServerFrameSchema } from '../../proto/index.ts';
import { type AgentFrameInit, helloFrame } from '../harness/agent.ts';
import { trustOf } from './memory-store.ts';

export const terms: SessionTerms = {
  gatewayId: 'gw-1',
  protocol: { min: 1, max: 1 },
  capabilities: ['delivery.cursor'],
  timing: { helloWithinMs: 10_000, heartbeatIntervalMs: 15_000, silentForMs: 50_000, reconnectWindowMs: 10_000 },
};

export type Effect = readonly [string, unknown];

/** Writes down what the machine asks for. */
export class Recorder implements SessionEffects {
  readonly effects: Effect[] = [];
  open = (hello: HelloFacts): void => void this.effects.push(['open', hello]);
  send = (frame: ServerFrameInit): void => void this.effects.push(['send', frame]);
  ack = (row: unknown): void => void this.effects.push(['ack', row]);
  reject = (row: unknown): void => void this.effects.push(['reject', row]);
  result = (row: unknown): void => void this.effects.push(['result', row]);
  progress = (row: unknown): void => void this.effects.push(['progress', row]);
  report = (report: unknown, soon: boolean): void => void this.effects.push(['report', { report, soon }]);
  wake = (): void => void this.effects.push(['wake', null]);
  trustRefused = (refused: unknown): void => void this.effects.push(['trustRefused', refused]);
  ask = (question: { readonly case: string }): void => void this.effects.push([`ask ${question.case}`, question]);
  end = (reason: string): void => void this.effects.push(['end', reason]);

  names(): string[] {
    return this.effects.map(([name, value]) =>
      name === 'send' ? `send ${(value as { frame: { case: string } }).frame.case}` : name === 'end' ? `end ${String(value)}` : name,
    );
  }

  /** The frames that were sent, as the wire carries them. */
  sent(): ServerFrame[] {
    return this.effects
      .filter(([name]) => name === 'send')
      .map(([, value]) => fromBinary(ServerFrameSchema, encodeMessage(ServerFrameSchema, value as ServerFrameInit, 'serverFrame')));
  }

  clear(): void {
    this.effects.length = 0;
  }
}

export const frameOf = (init: AgentFrameInit): AgentFrame =>
  fromBinary(AgentFrameSchema, toBinary(AgentFrameSchema, create(AgentFrameSchema, init)));
export const heartbeat = (sequence = 1n): AgentFrame => frameOf({ frame: { case: 'heartbeat', value: { sequence } } });

export function opened(
  over: Parameters<typeof helloFrame>[0] = {},
  special: Partial<SessionTerms> = {},
): { core: SessionCore; fx: Recorder } {
  const core = new SessionCore('node-1', { ...terms, ...special }, 0);
  const fx = new Recorder();
  core.onFrame(frameOf(helloFrame(over)), 0, fx);
  core.onOpened({ epoch: 4, ackedSeq: 0, identityGeneration: 1 }, { trust: trustOf(7), now: 5_000 }, fx);
  return { core, fx };
}
