/**
 * A signing worker and the database in one hand: the strongest that the control plane can turn against a machine. It signs any body with a
 * genuine worker key and puts it, with approvals of its choice, where the gateway takes it from.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import { hour } from '../../../domain/time.ts';
import { appendCommands } from '../../../drizzle/queries/commands.ts';
import { openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { signCommand, type WorkerKey } from '../../../pki/envelope/index.ts';
import { CommandBodySchema, NodeRebootSchema, SignatureSchema } from '../../../proto/index.ts';
import { sha256, workerUnder } from '../../harness/deployment.ts';
import type { LiveStack } from '../../harness/live-stack.ts';
import { type Held, type Leaf, payloadBytes, payloadOf } from './leaves.ts';

export interface Slipped extends Leaf {
  /** An encoded BatchApproval in place of the batch's own. */
  readonly approval?: Uint8Array;
  /** Default: half an hour. */
  readonly expiresInMs?: number;
}

export class Insider {
  readonly #stack: LiveStack;
  #worker: Promise<WorkerKey> | undefined;
  #slipped = 0;

  constructor(stack: LiveStack) {
    this.#stack = stack;
  }

  bundle(): PkiBundle {
    return openBundle(readFileSync(join(this.#stack.home, 'pki.json'), 'utf8'), { secret: this.#stack.secret() });
  }

  /** A reboot under a leaf of this batch, which counts as approved and open from now on. @returns its id */
  async slip(batch: Held, { node, reason, approval, expiresInMs = hour / 2 }: Slipped): Promise<string> {
    this.#slipped += 1;
    const [id, deadline] = [`slipped-${this.#slipped}`, Date.now() + expiresInMs];
    const generation = await this.#generationOf(node);
    const body = this.#bodyOf(batch, { id, node, reason, generation, deadline });
    await this.#intoBatch(batch, { id, node, reason, ...(approval === undefined ? {} : { approval }) });
    const key = await (this.#worker ??= this.#newWorker());
    const appended = await appendCommands(this.#stack.db, [
      {
        id,
        nodeId: node,
        generation,
        kind: 'node.reboot',
        lane: 'power',
        batchId: batch.batchId,
        body,
        bodySha256: sha256(body),
        signerRoot: key.rootId,
        signerNotAfter: key.notAfter,
        notBefore: Number.NEGATIVE_INFINITY,
        deadline,
        signature: toBinary(SignatureSchema, await signCommand(key, body)),
        createdAt: Date.now(),
        requestedBy: 'nobody',
      },
    ]);
    assert.ok(appended.has(id), 'the row was not taken');
    return id;
  }

  #newWorker(): Promise<WorkerKey> {
    const root = this.bundle().commandSigning;
    if (root === undefined) throw new Error('the bundle signs no commands');
    return workerUnder(root, Date.now());
  }

  async #generationOf(node: string): Promise<number> {
    const [row] = await this.#write('select generation from node_queue where node_id = $1', node);
    return Number(row?.['generation']);
  }

  #bodyOf(
    { batchId, trustDomain }: Held,
    command: { id: string; node: string; reason: string; generation: number; deadline: number },
  ): Uint8Array {
    return toBinary(
      CommandBodySchema,
      create(CommandBodySchema, {
        commandId: command.id,
        nodeId: command.node,
        kind: 'node.reboot',
        payload: anyPack(NodeRebootSchema, payloadOf(command.reason)),
        issuedAtMs: BigInt(Date.now()),
        expiresAtMs: BigInt(command.deadline),
        trustDomain,
        generation: BigInt(command.generation),
        batchId,
      }),
    );
  }

  async #intoBatch({ batchId }: Held, { id, node, reason, approval }: Leaf & { id: string; approval?: Uint8Array }): Promise<void> {
    await this.#write(
      `update command_batches set state = 'approved', members = members + 1, approval = coalesce($2, approval),
         not_after = case when not_after < now() then now() + interval '3 hours' else not_after end where id = $1`,
      batchId,
      approval ?? null,
    );
    await this.#write(
      `insert into command_batch_members (batch_id, member_index, command_id, leaf_index)
       select b.id, b.members - 1, $2, s.leaf_index from command_batches b join command_batch_scope s on s.batch_id = b.id
       where b.id = $1 and s.subject = $3 and s.payload_sha256 = $4`,
      batchId,
      id,
      node,
      sha256(payloadBytes(reason)),
    );
  }

  #write(text: string, ...values: unknown[]): Promise<Record<string, unknown>[]> {
    return this.#stack.db.query({ text }, values);
  }
}
