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

/** @throws PERMISSION_DENIED wrong-run */
function assertThisRun(payload: Message, boot: BootOfRun): void {
  const { runId } = payload as OfOneBoot;
  if (runId === boot.runId) return;
  throw new ControlError('PERMISSION_DENIED', `the command is of run "${runId}", this boot belongs to run "${boot.runId}"`, {
    details: { reason: 'wrong-run' },
  });
}

/** @throws PERMISSION_DENIED wrong-run, wrong-boot */
export function assertThisBoot(payload: Message, boot: BootOfRun): void {
  assertThisRun(payload, boot);
  const { bootNonce } = payload as OfOneBoot;
  if (Buffer.from(bootNonce).equals(boot.bootNonce)) return;
  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex') || 'none';
  throw new ControlError('PERMISSION_DENIED', `the command is for boot ${hex(bootNonce)} of the run, this is boot ${hex(boot.bootNonce)}`, {
    details: { reason: 'wrong-boot' },
  });
}

/** The handler, for commands of this boot only: refused before anything is noted or done. */
export const onlyThisBoot = (boot: BootOfRun, handler: KindHandler): KindHandler =>
  onlyIf((payload) => assertThisBoot(payload, boot), handler);

/** The same for a command that names its run alone; one for an earlier boot of it is of another generation of the identity. */
export const onlyThisRun = (boot: BootOfRun, handler: KindHandler): KindHandler =>
  onlyIf((payload) => assertThisRun(payload, boot), handler);

function onlyIf(assertMeant: (payload: Message) => void, handler: KindHandler): KindHandler {
  const { prepare, recover } = handler;
  return {
    ...handler,
    async prepare(payload, context) {
      assertMeant(payload);
      return (await prepare?.(payload, context)) ?? {};
    },
    async run(payload, context) {
      assertMeant(payload);
      return handler.run(payload, context);
    },
    ...(recover === undefined
      ? {}
      : {
          recover: async (payload, context) => {
            assertMeant(payload);
            return recover(payload, context);
          },
        }),
  };
}
