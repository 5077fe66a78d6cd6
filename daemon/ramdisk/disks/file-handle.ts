import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { ControlError } from '../../../domain/errors.ts';
import { hasErrno } from '../../state/files.ts';
import type { DiskHandle } from './disk-host.ts';

/**
 * A disk, or a file in the place of one. A device is opened exclusively for writing: the kernel refuses one that is mounted.
 *
 * @throws INVALID_STATE `disk-busy`
 */
export async function openDisk(path: string, mode: 'read' | 'write'): Promise<DiskHandle> {
  const flags = mode === 'read' ? constants.O_RDONLY : constants.O_RDWR | constants.O_EXCL;
  try {
    return handleOf(await open(path, flags), path);
  } catch (cause) {
    if (hasErrno(cause, 'EBUSY'))
      throw new ControlError('INVALID_STATE', `${path} is in use: something on it is mounted`, { cause, details: { reason: 'disk-busy' } });
    throw cause;
  }
}

const handleOf = (file: FileHandle, path: string): DiskHandle => ({
  async read(offset, length) {
    const bytes = Buffer.allocUnsafeSlow(length);
    for (let at = 0; at < length; ) {
      const { bytesRead } = await file.read(bytes, at, length - at, offset + at);
      if (bytesRead === 0)
        throw new ControlError('UNAVAILABLE', `${path} ends at byte ${offset + at}`, { details: { reason: 'disk-short' } });
      at += bytesRead;
    }
    return bytes;
  },
  async write(offset, bytes) {
    for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at, bytes.length - at, offset + at)).bytesWritten;
  },
  sync: () => file.sync(),
  close: () => file.close(),
});
