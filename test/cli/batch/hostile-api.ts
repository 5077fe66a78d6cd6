/**
 * An api that speaks the real HTTP of batches and says about them what a test wants it to say. It keeps what was sent to it: whatever a
 * command refuses must leave nothing here.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { Command } from 'commander';
import { toProblem } from '../../../api/problem.ts';
import { register } from '../../../cli/commands/batch/index.ts';
import { toExit, writeExit } from '../../../cli/exit.ts';
import { createPorts } from '../../../cli/ports.ts';
import { ControlError } from '../../../domain/errors.ts';
import { hour } from '../../../domain/time.ts';
import { createScope } from '../../../pki/quorum/index.ts';
import { encodeMessage, NodeRebootSchema } from '../../../proto/index.ts';
import { bearer, now } from '../../api/support.ts';
import { createTestIo, type TestIo } from '../support.ts';

export const trustDomain = 'compute.example.com';

export interface WireLeaf {
  index?: number;
  subject: string;
  kind: string;
  payloadSha256: string;
  payload?: { typeUrl: string; value: string };
}

/** A reboot of a machine, bound to its payload. */
export function reboot(subject: string, reason = 'kernel'): WireLeaf {
  const value = Buffer.from(encodeMessage(NodeRebootSchema, create(NodeRebootSchema, { reason, delaySeconds: 5 }), 'leafPayload'));
  return bound(subject, { kind: 'node.reboot', type: 'bettercompute.agent.v1.NodeReboot', value });
}

export const bound = (subject: string, { kind, type, value }: { kind: string; type: string; value: Buffer }): WireLeaf => ({
  subject,
  kind,
  payloadSha256: createHash('sha256').update(value).digest('hex'),
  payload: { typeUrl: `type.googleapis.com/${type}`, value: value.toString('base64') },
});

export interface HostileApi {
  /** What is answered about the batch; a test bends it. */
  batch: Record<string, unknown>;
  /** What the pages list, in order. */
  leaves: WireLeaf[];
  /** Replaces the answer of one path: the whole body, or a problem. */
  override: ((path: string) => unknown) | null;
  readonly approvals: { batch: string; kid: string; sig: string }[];
  readonly sent: { path: string; body: unknown }[];
  readonly pages: { after: string | null; limit: string | null }[];
  readonly url: string;
  close(): Promise<void>;
}

/** An honest answer about these leaves; the leaves in the order of the tree. */
export function honest(leaves: readonly WireLeaf[], id = 'bat_1'): { batch: Record<string, unknown>; leaves: WireLeaf[] } {
  const scope = createScope(
    id,
    leaves.map(({ subject, kind, payloadSha256 }) => ({ subject, kind, payloadSha256: Buffer.from(payloadSha256, 'hex') })),
  );
  const listed = scope.leaves.map((leaf, index) => {
    const found = leaves.find(
      ({ subject, kind, payloadSha256 }) =>
        subject === leaf.subject && kind === leaf.kind && payloadSha256 === Buffer.from(leaf.payloadSha256).toString('hex'),
    );
    return { ...(found as WireLeaf), index };
  });
  const batch = {
    id,
    tenantId: 'default',
    state: 'pending',
    reason: 'kernel update, change 4711',
    root: scope.root.toString('hex'),
    size: scope.size,
    notAfterMs: now + 24 * hour,
    trustDomain,
    required: 2,
    createdBy: 'ann',
    createdAt: now,
    approvals: [],
    approvedAt: null,
    closedAt: null,
    closedBy: '',
    closeReason: '',
    waves: null,
  };
  return { batch, leaves: listed };
}

export async function createHostileApi(
  leaves: readonly WireLeaf[] = [reboot('node_1'), reboot('node_2'), reboot('node_3')],
): Promise<HostileApi> {
  const approvals: HostileApi['approvals'] = [];
  const sent: HostileApi['sent'] = [];
  const pages: HostileApi['pages'] = [];
  const server: Server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const url = new URL(request.url ?? '/', 'http://api');
      const body: unknown = chunks.length === 0 ? null : JSON.parse(Buffer.concat(chunks).toString('utf8'));
      let [status, answer] = [200, undefined as unknown];
      try {
        if (request.headers.authorization !== `Bearer ${bearer}`) throw new ControlError('UNAUTHENTICATED', 'no token');
        if (request.method === 'POST') sent.push({ path: url.pathname, body });
        answer = api.override?.(url.pathname) ?? answerTo(url, body);
      } catch (error) {
        const problem = toProblem(error);
        [status, answer] = [problem.status, problem];
      }
      response.writeHead(status, { 'content-type': 'application/json' }).end(typeof answer === 'string' ? answer : JSON.stringify(answer));
    });
  });
  const answerTo = (url: URL, body: unknown): unknown => {
    const [, id, what] = /^\/v1\/batches(?:\/([^/]+)(?:\/([a-z]+))?)?$/.exec(url.pathname) ?? [];
    if (id === undefined)
      return body === null
        ? { batches: [api.batch], next: null }
        : { batchId: 'bat_new', held: true, required: 2, size: 1, root: 'a'.repeat(64), created: true };
    if (what === undefined) return api.batch;
    if (what === 'scope') return pageOf(url);
    if (what !== 'approve') return { changed: true, cancelled: 3 };
    const { kid, sig } = body as { kid: string; sig: string };
    approvals.push({ batch: decodeURIComponent(id), kid, sig });
    return { kind: 'recorded', kid, have: approvals.length, required: 2, released: approvals.length >= 2 };
  };
  const pageOf = (url: URL): unknown => {
    const [after, limit] = [url.searchParams.get('after'), url.searchParams.get('limit')];
    pages.push({ after, limit });
    const from = api.leaves.filter((leaf, at) => (leaf.index ?? at) > Number(after ?? -1)).slice(0, Number(limit));
    const last = from.at(-1)?.index ?? null;
    return { leaves: from, next: last === null || last === api.leaves.at(-1)?.index ? null : last };
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const api: HostileApi = {
    ...honest(leaves),
    override: null,
    approvals,
    sent,
    pages,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
  return api;
}

export interface Run {
  readonly exitCode: number;
  readonly out: string;
  readonly err: string;
}

export interface Desk {
  readonly env: NodeJS.ProcessEnv;
  path(name: string): string;
  write(name: string, text: string): string;
  read(name: string): string;
  run(...argv: string[]): Promise<Run>;
  close(): void;
}

/** An approver's desk: a folder with keys, and the command. */
export function createDesk(api: HostileApi | null, clock?: () => number): Desk {
  const folder = mkdtempSync(join(tmpdir(), 'bc-desk-'));
  const env: NodeJS.ProcessEnv = {
    BETTER_COMPUTE_HOME: join(folder, 'home'),
    BETTER_COMPUTE_OPERATOR_TOKEN: bearer,
    ...(api === null ? {} : { BETTER_COMPUTE_API_URL: api.url }),
  };
  const path = (name: string): string => join(folder, name);
  return {
    env,
    path,
    write: (name, text) => {
      writeFileSync(path(name), text, { mode: 0o600 });
      return path(name);
    },
    read: (name) => readFileSync(path(name), 'utf8'),
    run: async (...argv) => {
      const io = createTestIo({ env, ...(clock === undefined ? {} : { clock }) });
      const exitCode = await runBatch(argv, io);
      return { exitCode, out: io.stdout(), err: io.stderr() };
    },
    close: () => rmSync(folder, { recursive: true, force: true }),
  };
}

async function runBatch(argv: readonly string[], io: TestIo): Promise<number> {
  const program = new Command('better-compute').option('--json');
  register(program, io, createPorts(io));
  const settle = (command: Command): void => {
    command.exitOverride().configureOutput({ writeOut: io.out, writeErr: io.err, outputError: () => undefined });
    command.commands.forEach(settle);
  };
  settle(program);
  try {
    await program.parseAsync(['batch', ...argv], { from: 'user' });
    return 0;
  } catch (error) {
    return writeExit(io, toExit(error), argv.includes('--json'));
  }
}

export async function succeeds(run: Promise<Run>): Promise<Run> {
  const done = await run;
  assert.equal(done.exitCode, 0, done.err);
  return done;
}
