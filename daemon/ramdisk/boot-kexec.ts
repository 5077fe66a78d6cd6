/**
 * boot.kexec: loads what is to be started, answers, and jumps only when the control plane has confirmed the answer (M11). The answer says
 * "about to jump" and nothing more: whether the machine came up is said by the next identity that joins.
 *
 * A jump that hangs (M12) is therefore no lost answer: the run waits for the next join, and power-cycles when none comes.
 */
import { ControlError } from '../../domain/errors.ts';
import { selectDisk } from '../../domain/metal/select-disks.ts';
import { type BootKexec, BootKexecResultSchema } from '../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from '../kinds/handler.ts';
import { wantedDisk } from './disks/disk-message.ts';
import type { RamdiskPorts } from './ports.ts';

export function bootKexecHandler({ disks, jump }: RamdiskPorts): KindHandler {
  const run = async (payload: BootKexec, { commandId, signal, note }: KindContext): Promise<KindEnd> => {
    const bootId = await jump.readBootId();
    // The boot that was noted is over: the machine has left it, by this command or by a power cut.
    if (note['bootId'] !== undefined && note['bootId'] !== bootId)
      return { kind: 'interrupted', message: `the machine left boot ${note['bootId']} and is back in a ramdisk, boot ${bootId}` };
    const disk = selectDisk(await disks.list(), wantedDisk(payload.target));
    const { partition, kernelArgs, reboot } = payload;
    if (/[\0\n]/.test(kernelArgs) || kernelArgs.length > 2048)
      throw new ControlError('INVALID_INPUT', 'kernel_args must be one line of at most 2048 characters', {
        details: { reason: 'kernel-args' },
      });
    const target = { diskPath: disks.path(disk), partition, kernelArgs, reboot };
    const kernel = await jump.load(target, signal);
    signal.throwIfAborted();
    await jump.afterReceipt(commandId, target);
    return succeeded(BootKexecResultSchema, { bootId, kernel, jumping: true });
  };
  return {
    prepare: async () => ({ bootId: await jump.readBootId() }),
    run: (payload, context) => run(payload as BootKexec, context),
    // Nothing has happened before the receipt: loading again does no harm.
    recover: (payload, context) => run(payload as BootKexec, context),
  };
}
