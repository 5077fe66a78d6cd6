/** A ramdisk's handlers over a folder of fake disks, with a real key and chain; and the executor that runs them. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Message, MessageInitShape } from '@bufbuild/protobuf';
import { create, type DescMessage, fromBinary } from '@bufbuild/protobuf';
import type { KindContext, KindEnd, KindHandler } from '../../daemon/kinds/handler.ts';
import { folderDisks, folderMachine } from '../../daemon/ramdisk/disks/folder.ts';
import { evidenceSigner } from '../../daemon/ramdisk/evidence-signer.ts';
import { createRamdiskHandlers, type RamdiskPorts } from '../../daemon/ramdisk/index.ts';
import type { KindOfRole } from '../../domain/commands/kinds.ts';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { hour } from '../../domain/time.ts';
import { verifyEnvelope } from '../../pki/envelope/index.ts';
import { nodeIdentityOf, parseCertificate, verifyChain } from '../../pki/x509/index.ts';
import {
  type DeployEvidence,
  DeployEvidenceSchema,
  DeployImageResultSchema,
  DiskWipeResultSchema,
  type EraseEvidence,
  EraseEvidenceSchema,
  protocolRegistry,
  type Signed,
} from '../../proto/index.ts';
import { createDeployment, joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { scratchFolder } from '../harness/scratch.ts';

export const mebibyte = 1024 * 1024;
export const boot = Object.freeze({ nodeId: 'node-1', runId: 'a1b2c3d4e5f6', bootNonce: Buffer.alloc(16, 9) });

export interface DiskInit {
  readonly serial?: string;
  readonly wwn?: string;
  readonly model?: string;
  readonly transport?: string;
  readonly logicalBlockBytes?: number;
  readonly can?: readonly string[];
  readonly tools?: Readonly<Record<string, { exit?: number; says?: string; erases?: boolean }>>;
  readonly dead?: boolean;
  /** What lies on it; default: 1 MiB of random bytes. */
  readonly content?: Uint8Array;
}

export interface RamdiskStage {
  readonly folder: string;
  readonly deployment: TestDeployment;
  readonly ports: RamdiskPorts;
  readonly progress: { done: number; total: number; note: string }[];
  disk(name: string, init?: DiskInit): void;
  content(name: string): Buffer;
  /** Runs a handler as the executor would, prepare first. */
  run(kind: KindOfRole<'ramdisk'>, payload: Record<string, unknown>, over?: Partial<KindContext>): Promise<KindEnd>;
  handler(kind: KindOfRole<'ramdisk'>): KindHandler;
}

export async function stageRamdisk(over: Partial<RamdiskPorts> = {}): Promise<RamdiskStage> {
  const deployment = await createDeployment();
  const stored = await joinedNode(deployment, { gatewayUrl: 'https://127.0.0.1:1', role: 'ramdisk', lifetimeMs: hour });
  const folder = scratchFolder();
  writeFileSync(
    join(folder, 'machine.json'),
    JSON.stringify({ systemUuid: 'uuid-1', systemSerial: 'S-1', macAddresses: ['02:00:00:00:00:01'], cpus: 2 }),
  );
  const progress: RamdiskStage['progress'] = [];
  const ports: RamdiskPorts = {
    boot,
    disks: folderDisks(folder),
    machine: () => folderMachine(folder),
    signer: () => evidenceSigner(stored),
    secrets: { read: (ref) => Promise.reject(new Error(`no secret ${ref}`)) },
    jump: { readBootId: async () => 'boot-1', load: async () => 'kernel', afterReceipt: async () => undefined },
    plugins: null,
    scratch: scratchFolder(),
    random: (length) => randomBytes(length),
    sleep: async () => undefined,
    ...over,
  };
  const handlers = createRamdiskHandlers(ports);
  return {
    folder,
    deployment,
    ports,
    progress,
    disk(name, { content = randomBytes(mebibyte), ...facts } = {}) {
      writeFileSync(join(folder, `${name}.img`), content);
      writeFileSync(join(folder, `${name}.json`), JSON.stringify(facts));
    },
    content: (name) => readFileSync(join(folder, `${name}.img`)),
    handler: (kind) => handlers[kind],
    async run(kind, payload, overContext = {}) {
      const message = payloadOf(kind, payload);
      const around = {
        commandId: 'machine/node-1/provision/a1b2c3d4e5f6/step.1',
        signal: new AbortController().signal,
        now: Date.now,
        progress: (report: RamdiskStage['progress'][number]) => void progress.push(report),
        ...overContext,
      };
      const note = (await handlers[kind].prepare?.(message, around)) ?? {};
      return handlers[kind].run(message, { note, ...around });
    },
  };
}

/** The payload of a kind, of this run and boot unless it says another. */
export function payloadOf(kind: KindOfRole<'ramdisk'>, payload: Record<string, unknown>): Message {
  const schema = protocolRegistry.getMessage(findCommandKind(kind)?.payload ?? '') as DescMessage;
  return create(schema, { runId: boot.runId, bootNonce: boot.bootNonce, ...payload });
}

/** Renames disks: what the kernel calls them is another thing after the next boot. */
export function shuffleNames(folder: string, names: Readonly<Record<string, string>>): void {
  const move = (from: string, to: string): void => {
    for (const end of ['img', 'json'])
      if (existsSync(join(folder, `${from}.${end}`))) renameSync(join(folder, `${from}.${end}`), join(folder, `${to}.${end}`));
  };
  for (const from of Object.keys(names)) move(from, `moving-${from}`);
  for (const [from, to] of Object.entries(names)) move(`moving-${from}`, to);
}

export function eraseEvidenceOf(stage: RamdiskStage, end: KindEnd): EraseEvidence {
  const answer = end.kind === 'interrupted' ? undefined : end.kind === 'failed' ? end.answer : end;
  assert.equal(answer?.schema, DiskWipeResultSchema, `no evidence: ${said(end)}`);
  const { evidence } = create(DiskWipeResultSchema, answer?.value as MessageInitShape<typeof DiskWipeResultSchema>);
  return fromBinary(EraseEvidenceSchema, verified(stage, evidence, 'erase-evidence'));
}

export function deployEvidenceOf(stage: RamdiskStage, end: KindEnd): DeployEvidence {
  assert.equal(end.kind, 'succeeded', said(end));
  const { evidence } = create(DeployImageResultSchema, (end as { value: MessageInitShape<typeof DeployImageResultSchema> }).value);
  return fromBinary(DeployEvidenceSchema, verified(stage, evidence, 'deploy-evidence'));
}

/** As somebody checks it who was not there: chain, role, name, signature. */
function verified({ deployment }: RamdiskStage, signed: Signed | undefined, purpose: 'erase-evidence' | 'deploy-evidence'): Uint8Array {
  const { body = new Uint8Array(), signature } = signed ?? {};
  const anchors = [deployment.bundle.nodeCa.certificate.der];
  const { leaf } = verifyChain([...(signature?.chain ?? [])], { anchors, now: Date.now(), purpose: 'client' });
  const { role, nodeId } = nodeIdentityOf(parseCertificate(leaf.der), deployment.trustDomain);
  assert.deepEqual([role, nodeId], ['ramdisk', 'node-1']);
  verifyEnvelope({ signature, purpose, parts: [body], key: leaf.spki });
  return body;
}

const said = (end: KindEnd): string => (end.kind === 'succeeded' ? end.kind : end.message);

/** Whether this machine has it, so that a counterpart that is missing is skipped by name. */
export const hasProgram = (name: string): boolean =>
  `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`.split(':').some((folder) => existsSync(join(folder, name)));
