/**
 * logs.collect: the log of a unit, or of a file this machine's owner named, goes to the address in the signed command; the session
 * carries its size and hash only (BND-006). Bounded from the start: what exceeds the bound is cut off, and the last whole lines win.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type ClientRequest, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Readable } from 'node:stream';
import { ControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { type LogsCollect, LogsCollectResultSchema } from '../../proto/index.ts';
import { hasErrno } from '../state/files.ts';
import { type KindHandler, succeeded } from './handler.ts';
import { isUnitName, spawnFailure } from './program.ts';

export interface LogSources {
  /** Name in the command → path of a file that may be sent; every other name is a systemd unit. */
  readonly files: Readonly<Record<string, string>>;
}

export const logBounds = Object.freeze({ defaultBytes: 16 * 1024 * 1024, maxBytes: 64 * 1024 * 1024 });

export function logsCollectHandler(sources: LogSources): KindHandler {
  return {
    async run(payload, { signal, progress }) {
      const wanted = payload as LogsCollect;
      const url = uploadUrl(wanted.uploadUrl);
      const content = await readLog(wanted, sources, signal);
      progress({ done: 0, total: content.length, note: 'uploading' });
      await upload(url, content, signal);
      const lines = content.reduce((count, byte) => (byte === 0x0a ? count + 1 : count), 0);
      return succeeded(LogsCollectResultSchema, {
        bytes: BigInt(content.length),
        sha256: createHash('sha256').update(content).digest(),
        lines: BigInt(lines),
      });
    },
  };
}

function uploadUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && (url.protocol === 'https:' || url.protocol === 'http:')) return url;
  throw new ControlError('INVALID_INPUT', 'upload_url must be an http or https URL', { details: { reason: 'upload-url' } });
}

async function readLog(wanted: LogsCollect, { files }: LogSources, signal: AbortSignal): Promise<Buffer> {
  const maxBytes =
    wanted.maxBytes === 0n
      ? logBounds.defaultBytes
      : Number(wanted.maxBytes > BigInt(logBounds.maxBytes) ? BigInt(logBounds.maxBytes) : wanted.maxBytes);
  const path = Object.hasOwn(files, wanted.unit) ? files[wanted.unit] : undefined;
  if (path !== undefined) return readFileLog(path, { maxBytes, signal });
  if (!isUnitName(wanted.unit))
    throw new ControlError('INVALID_INPUT', 'the payload names neither a log of this machine nor a systemd unit', {
      details: { reason: 'unit-name' },
    });
  return readJournal(wanted, { maxBytes, signal });
}

interface ReadOptions {
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

async function readFileLog(path: string, options: ReadOptions): Promise<Buffer> {
  try {
    return await tailOf(createReadStream(path, { signal: options.signal }), options.maxBytes);
  } catch (cause) {
    options.signal.throwIfAborted();
    const why = hasErrno(cause, 'ENOENT') ? 'it does not exist' : cause instanceof Error ? cause.message : String(cause);
    throw new ControlError('UNAVAILABLE', `the log file ${path} cannot be read: ${why}`, { cause, details: { reason: 'log-file' } });
  }
}

async function readJournal(wanted: LogsCollect, { maxBytes, signal }: ReadOptions): Promise<Buffer> {
  const at = (ms: bigint): string => `@${(Number(ms) / 1000).toFixed(3)}`;
  const args = ['--no-pager', '--output=short-iso-precise', `--unit=${wanted.unit}`];
  if (wanted.sinceMs !== 0n) args.push(`--since=${at(wanted.sinceMs)}`);
  if (wanted.untilMs !== 0n) args.push(`--until=${at(wanted.untilMs)}`);
  const child = spawn('journalctl', args, { stdio: ['ignore', 'pipe', 'pipe'], signal });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    if (said.length < 4096) said += chunk.toString('utf8');
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', (cause) => reject(signal.aborted ? (signal.reason as Error) : spawnFailure('journalctl', cause)));
    child.once('close', resolve);
  });
  const [content, status] = await Promise.all([tailOf(child.stdout, maxBytes), ended]);
  if (status === 0) return content;
  throw new ControlError(
    'UNAVAILABLE',
    `journalctl failed with status ${status ?? 'none'}: ${(said.trim().split('\n')[0] ?? '').slice(0, 300)}`,
    { details: { reason: 'journalctl' } },
  );
}

/** The end of a stream, from the first whole line within the bound; never more than twice the bound in memory. */
async function tailOf(stream: Readable, maxBytes: number): Promise<Buffer> {
  let chunks: Buffer[] = [];
  let bytes = 0;
  let cut = false;
  for await (const chunk of stream) {
    chunks.push(chunk as Buffer);
    bytes += (chunk as Buffer).length;
    if (bytes <= 2 * maxBytes) continue;
    chunks = [Buffer.concat(chunks).subarray(-maxBytes)];
    bytes = maxBytes;
    cut = true;
  }
  const all = Buffer.concat(chunks);
  if (!cut && all.length <= maxBytes) return all;
  const tail = all.subarray(-maxBytes);
  const lineEnd = tail.indexOf(0x0a);
  return lineEnd === -1 ? tail : tail.subarray(lineEnd + 1);
}

/** One PUT; a redirect is an answer like any other, and a refusal here. */
function upload(url: URL, content: Buffer, signal: AbortSignal): Promise<void> {
  const request = url.protocol === 'https:' ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    const fail = (why: string, cause?: unknown): void =>
      reject(
        signal.aborted
          ? (signal.reason as Error)
          : new ControlError('UNAVAILABLE', `the upload to ${url.host} failed: ${why}`, { cause, details: { reason: 'upload' } }),
      );
    const call: ClientRequest = request(
      url,
      {
        method: 'PUT',
        signal,
        timeout: minute,
        headers: { 'content-type': 'text/plain; charset=utf-8', 'content-length': content.length },
      },
      (response) => {
        response.resume();
        response.once('end', () => ((response.statusCode ?? 500) < 300 ? resolve() : fail(`status ${response.statusCode}`)));
      },
    );
    call.once('timeout', () => call.destroy(new Error('no answer within a minute')));
    call.once('error', (cause) => fail(cause.message, cause));
    call.end(content);
  });
}
