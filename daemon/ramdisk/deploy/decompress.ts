/**
 * Undoes the compression of an image, as a stream. gzip is Node's own; zstd is Node's own where it has it, else the `zstd` program: it
 * streams in bounded memory, is kept by those who define the format, and a hostile file ends a child and not this process.
 */
import { spawn } from 'node:child_process';
import { Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as zlib from 'node:zlib';
import { ControlError } from '../../../domain/errors.ts';
import { spawnFailure } from '../../kinds/program.ts';

const chunkSize = 1024 * 1024;

type Decompress = (source: AsyncIterable<Uint8Array>, signal: AbortSignal) => AsyncIterable<Uint8Array>;

const ways: Readonly<Record<string, Decompress>> = Object.freeze({
  none: (source) => source,
  gzip: (source) => throughZlib('gzip', source, zlib.createGunzip({ chunkSize })),
  zstd: (source, signal) => {
    const { createZstdDecompress } = zlib as { createZstdDecompress?: (options: { chunkSize: number }) => Transform };
    return createZstdDecompress === undefined
      ? throughProgram(source, signal)
      : throughZlib('zstd', source, createZstdDecompress({ chunkSize }));
  },
});

/** @throws INVALID_INPUT for a compression that is none of none, gzip and zstd */
export function assertCompression(name: string): void {
  if (Object.hasOwn(ways, name)) return;
  throw new ControlError('INVALID_INPUT', `compression is "${name}", it must be one of ${Object.keys(ways).join(', ')}`, {
    details: { reason: 'compression' },
  });
}

/** The stream throws DATA_CORRUPT when the bytes are not of this form; UNSUPPORTED when there is no zstd on this machine. */
export const decompressed = (name: string, source: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncIterable<Uint8Array> =>
  (ways[name] as Decompress)(source, signal);

async function* throughZlib(name: string, source: AsyncIterable<Uint8Array>, through: Transform): AsyncGenerator<Uint8Array> {
  // Its end and its failure both come out of the loop below.
  pipeline(Readable.from(source, { objectMode: true, highWaterMark: 1 }), through).catch(() => undefined);
  try {
    for await (const chunk of through) yield chunk as Buffer;
  } catch (error) {
    if (error instanceof ControlError || !String((error as NodeJS.ErrnoException).code).startsWith('Z')) throw error;
    throw corrupt(name, (error as Error).message);
  }
}

async function* throughProgram(source: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const child = spawn('zstd', ['--decompress', '--stdout', '--quiet', '--no-progress', '-'], { stdio: ['pipe', 'pipe', 'pipe'], signal });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    if (said.length < 1000) said += chunk.toString('utf8');
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', (cause) => reject(signal.aborted ? (signal.reason as Error) : spawnFailure('zstd', cause)));
    child.once('close', resolve);
  });
  ended.catch(() => undefined);
  let feeding: unknown;
  // A program that gives up closes its end: what it says is the reason then, not the broken pipe.
  const fed = pipeline(Readable.from(source, { objectMode: true, highWaterMark: 1 }), child.stdin).catch((error: unknown) => {
    feeding = error;
    if (!isPipe(error)) child.kill();
  });
  try {
    for await (const chunk of child.stdout) yield chunk as Buffer;
    await fed;
    const status = await ended;
    if (feeding !== undefined && !isPipe(feeding)) throw feeding;
    if (status !== 0) throw corrupt('zstd', said.trim().split('\n')[0] ?? '');
  } finally {
    child.kill();
  }
}

const isPipe = (error: unknown): boolean => ['EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'].includes(String((error as NodeJS.ErrnoException).code));

const corrupt = (name: string, said: string): ControlError =>
  new ControlError('DATA_CORRUPT', `the image is not ${name}, or it is cut: ${said.slice(0, 200)}`, {
    details: { reason: 'image-corrupt' },
  });
