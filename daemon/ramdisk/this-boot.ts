/**
 * A command is for one boot of one run (M34): a machine that was restarted for the next run may find a ramdisk of the last one still
 * connected, and a destructive command must not reach it. The identity's generation says so already; this holds where it does not.
 */
import type { Message } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import type { KindHandler } from '../kinds/handler.ts';
import type { BootOfRun } from './ports.ts';

interface OfOneBoot extends Message {
  readonly runId: string;
  readonly bootNonce: Uint8Array;
}

/** @throws PERMISSION_DENIED wrong-run, wrong-boot */
export function assertThisBoot(payload: Message, boot: BootOfRun): void {
  const { runId, bootNonce } = payload as OfOneBoot;
  if (runId !== boot.runId)
    throw new ControlError('PERMISSION_DENIED', `the command is of run "${runId}", this boot belongs to run "${boot.runId}"`, {
      details: { reason: 'wrong-run' },
    });
  if (Buffer.from(bootNonce).equals(boot.bootNonce)) return;
  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex') || 'none';
  throw new ControlError('PERMISSION_DENIED', `the command is for boot ${hex(bootNonce)} of the run, this is boot ${hex(boot.bootNonce)}`, {
    details: { reason: 'wrong-boot' },
  });
}

/** The handler, for commands of this boot only: refused before anything is noted or done. */
export function onlyThisBoot(boot: BootOfRun, handler: KindHandler): KindHandler {
  const { prepare, recover } = handler;
  return {
    async prepare(payload, context) {
      assertThisBoot(payload, boot);
      return (await prepare?.(payload, context)) ?? {};
    },
    async run(payload, context) {
      assertThisBoot(payload, boot);
      return handler.run(payload, context);
    },
    ...(recover === undefined
      ? {}
      : {
          recover: async (payload, context) => {
            assertThisBoot(payload, boot);
            return recover(payload, context);
          },
        }),
  };
}
