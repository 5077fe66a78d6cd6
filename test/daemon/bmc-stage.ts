/** Fake controllers, and handlers that talk to them on a clock of their own; everything that was started is closed after each test. */
import assert from 'node:assert/strict';
import { create, type DescMessage, type Message, type MessageInitShape, type MessageShape } from '@bufbuild/protobuf';
import type { KindContext, KindEnd } from '../../daemon/kinds/handler.ts';
import type { SecretBinding } from '../../daemon/secrets/port.ts';
import { memoryRefusals, type RefusalStore } from '../../daemon/site/bmc/credential-broker.ts';
import { createBmcHandlers } from '../../daemon/site/bmc/handlers.ts';
import type { BmcHandlers, BmcKind } from '../../daemon/site/bmc/ports.ts';
import type { StartNote } from '../../daemon/state/journal.ts';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import { protocolRegistry } from '../../proto/index.ts';
import { type FakeBmc, type FakeBmcOptions, startFakeBmc } from '../fakes/bmc/server.ts';

export const account = Object.freeze({ username: 'root', password: 'correct-horse-1' });
export const credentialRef = 'secret://bmc/m-1';
export const nextRef = 'secret://bmc/m-1/next';

export interface BmcStage {
  /** Virtual: moves by what is slept. */
  readonly clock: { now: () => number; readonly slept: number[]; advance(ms: number): void; onSleep: (() => Promise<void>) | undefined };
  /** Reference → account. */
  readonly secrets: Map<string, { username: string; password: string } | string>;
  /** What was asked for since the test began, in order: reference and binding. */
  readonly asked: (readonly [ref: string, binding: SecretBinding])[];
  readonly refusals: RefusalStore;
  /** Without TLS, unless it is asked for. */
  bmcWith(options?: Partial<FakeBmcOptions>): Promise<FakeBmc>;
  /** Handlers of one agent; another call is another agent, or the same one after a restart. */
  handlers(options?: { refusals?: RefusalStore; abortAfterSleeps?: number }): BmcHandlers;
  /** prepare and run, as the executor would. */
  perform(kind: BmcKind, bmc: FakeBmc, options?: PerformOptions): Promise<KindEnd>;
}

export interface PerformOptions {
  readonly payload?: Readonly<Record<string, unknown>>;
  readonly commandId?: string;
  readonly handlers?: BmcHandlers;
  readonly note?: StartNote;
  readonly signal?: AbortSignal;
  readonly earlier?: KindContext['earlier'];
  /** 'run': prepare and run. */
  readonly how?: 'run' | 'recover';
}

export const payloadOf = (
  kind: BmcKind,
  bmc: Pick<FakeBmc, 'address' | 'pinSha256'>,
  more: Readonly<Record<string, unknown>> = {},
): Message => {
  const schema = protocolRegistry.getMessage(findCommandKind(kind)?.payload ?? '') as DescMessage;
  const { address, pinSha256 } = bmc;
  return create(schema, { address, nodeId: 'm-1', credentialRef, pinSha256, runId: 'run-1', ...more });
};

/** Called inside a `describe`. */
export function setBmcStage(): BmcStage {
  const running: FakeBmc[] = [];
  const slept: number[] = [];
  let at = Date.UTC(2026, 0, 2);
  afterEach(async () => {
    for (const bmc of running.splice(0)) await bmc.close();
    slept.length = 0;
    stage.asked.length = 0;
    stage.clock.onSleep = undefined;
    stage.secrets.clear();
    stage.secrets.set(credentialRef, account);
  });
  const now = (): number => at;
  const stage: BmcStage = {
    clock: { now, slept, advance: (ms) => void (at += ms), onSleep: undefined },
    secrets: new Map<string, { username: string; password: string } | string>([[credentialRef, account]]),
    asked: [],
    refusals: memoryRefusals(),
    async bmcWith(options = {}) {
      const bmc = await startFakeBmc({ tree: 'minimal', credential: account, now, tls: false, ...options });
      running.push(bmc);
      return bmc;
    },
    handlers: ({ refusals = memoryRefusals() } = {}) =>
      createBmcHandlers({
        config: {
          get insecureHttp() {
            return running.filter(({ pinSha256 }) => pinSha256 === '').map(({ address }) => address);
          },
        },
        now,
        refusals,
        secrets: {
          read: async (ref, binding) => {
            stage.asked.push([ref, binding]);
            const found = stage.secrets.get(ref);
            if (found === undefined) throw new ControlError('NOT_FOUND', `there is no secret ${ref}`);
            return Buffer.from(typeof found === 'string' ? found : JSON.stringify(found));
          },
        },
        sleep: async (ms, signal) => {
          signal.throwIfAborted();
          slept.push(ms);
          at += ms;
          await stage.clock.onSleep?.();
        },
      }),
    async perform(kind, bmc, options = {}) {
      const { payload, commandId = 'machine/m-1/provision/run-1/power.1', how = 'run', note = {} } = options;
      const handler = (options.handlers ?? stage.handlers())[kind];
      const context: KindContext = {
        commandId,
        signal: options.signal ?? new AbortController().signal,
        now,
        note,
        earlier: options.earlier,
        progress: () => undefined,
      };
      const message = payloadOf(kind, bmc, payload);
      if (how === 'recover') return (handler.recover ?? handler.run)(message, context);
      const noted = { ...note, ...(await handler.prepare?.(message, context)) };
      return handler.run(message, { ...context, note: noted });
    },
  };
  return stage;
}

/** The value of a success. */
export function valueOf<D extends DescMessage>(schema: D, end: KindEnd): MessageShape<D> {
  if (end.kind !== 'succeeded') throw new Error(`not a success: ${JSON.stringify(end)}`);
  assert.equal(end.schema.typeName, schema.typeName);
  return create(schema, end.value as MessageInitShape<D>);
}
