/**
 * A stack with three real daemons and three approvers, two of whom must sign; what operators, approvers and adversaries do on it, and what
 * a machine says of it: its verdicts, its reboots, its log.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ApiCall, type CommandAnswer, createApiCall } from '../../../cli/api-client.ts';
import { createSettings } from '../../../cli/settings.ts';
import { type ApprovalFacts, signApproval, signApproverSet } from '../../../pki/quorum/index.ts';
import { kidOf, signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { taskQueues, workflowIds } from '../../../temporal.config.ts';
import { type Approver, quorumOfApprovers } from '../../harness/approvers.ts';
import { eventually } from '../../harness/eventually.ts';
import type { LiveStack, Victim } from '../../harness/live-stack.ts';
import { Insider } from './insider.ts';
import { type Held, type Leaf, leafOf } from './leaves.ts';

/** For a hang, on a machine that does much else. */
export const patienceMs = 120_000;
/** Whose clock a test moves; engines keep theirs. */
const movedProcesses: readonly Victim[] = ['api', 'gateway', 'control', 'signing'];

/** An approver with a desk: the key lies in a file. */
export interface Person extends Approver {
  readonly keyFile: string;
}

interface Signature {
  readonly kid: string;
  readonly sig: Uint8Array;
}

interface StoredBatch {
  readonly root: string;
  readonly size: number;
  readonly notAfterMs: number;
  readonly trustDomain: string;
}

export const nodes = ['node-1', 'node-2', 'node-3'] as const;

export const apiUrlOf = (stack: LiveStack): string => createSettings({ BETTER_COMPUTE_HOME: stack.home }).apiUrl();
export const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
const findText = (path: string): string => (existsSync(path) ? readFileSync(path, 'utf8') : '');
const messagesOf = (error: unknown): string[] => (error instanceof Error ? [error.message, ...messagesOf(error.cause)] : []);
const shortLeaf = (node: string): Leaf => ({ node, reason: 'a short window' });

function createPerson(home: string, name: string): Person {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const keyFile = join(home, `${name}.pem`);
  writeFileSync(keyFile, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
  const signer = signerFromPrivateKey(privateKey);
  return { kid: kidOf(signer.spki), signer, keyFile };
}

export class Scene {
  readonly stack: LiveStack;
  readonly anna: Person;
  readonly ben: Person;
  readonly cleo: Person;
  readonly insider: Insider;
  readonly #clock: string;
  readonly #call: ApiCall;
  #short: Held | undefined;

  /** @param clock file of the wall clock that the stack was started with (moved-clock.mjs) */
  constructor(stack: LiveStack, clock: string) {
    this.stack = stack;
    this.#clock = clock;
    [this.anna, this.ben, this.cleo] = [
      createPerson(stack.home, 'anna'),
      createPerson(stack.home, 'ben'),
      createPerson(stack.home, 'cleo'),
    ];
    this.#call = createApiCall(createSettings({ BETTER_COMPUTE_HOME: stack.home }));
    this.insider = new Insider(stack);
  }

  /** Starts the machines, introduces the approvers, and has them approve a batch whose window is the shortest there is. */
  async begin(): Promise<void> {
    const { anna, ben, cleo } = this;
    await Promise.all(nodes.map((name) => this.stack.daemon(name).start()));
    await this.introduce([anna, ben, cleo], 1, [anna, ben]);
    this.#short = await this.hold(nodes.map(shortLeaf), 60);
    await this.approve(this.#short, anna, ben);
  }

  /** That batch, once its window is over, and a leaf of it that nobody used. */
  async over(node: string): Promise<{ readonly batch: Held; readonly leaf: Leaf }> {
    const batch = this.#short;
    if (batch === undefined) throw new Error('the scene has not begun');
    await eventually('the end of the short window', () => Date.now() > batch.notAfterMs, patienceMs);
    return { batch, leaf: shortLeaf(node) };
  }

  /** Asks for a batch of reboots, through the api. */
  async hold(leaves: readonly Leaf[], seconds = 3_600): Promise<Held> {
    const asked = { reason: 'kernel update', scope: leaves.map(leafOf), notAfterSeconds: seconds, actor: 'olga' };
    const { batchId } = await this.#call<{ batchId: string }>('POST', '/v1/batches', asked);
    const { root, size, notAfterMs, trustDomain } = await this.#call<StoredBatch>('GET', `/v1/batches/${batchId}`);
    return { batchId, root: Buffer.from(root, 'hex'), size, notAfterMs, trustDomain, workflowId: workflowIds.approveBatch(batchId) };
  }

  /** Asks for the command of a leaf. @returns its id, once it is stored; @throws what its run fails with */
  async put({ batchId }: Held, { node, reason }: Leaf): Promise<string> {
    const asked = { nodes: [node], kind: 'node.reboot', payload: { reason }, actor: 'olga', batchId };
    const { workflowId } = await this.stack.api.runCommands(asked);
    const run = this.stack.client.workflow.getHandle(workflowId);
    return eventually(
      'the command',
      async () => {
        const [found] = await this.stack.api.getCommands(workflowId).catch(() => []);
        if (found !== undefined) return found.id;
        if ((await run.describe()).status.name !== 'FAILED') return undefined;
        throw new Error(await this.failureOf(workflowId));
      },
      patienceMs,
    );
  }

  sign(batch: ApprovalFacts, by: Approver): ReturnType<typeof signApproval> {
    return signApproval(by.signer, batch);
  }

  /** One signature, through the api. */
  send({ batchId }: Held, { kid, sig }: Signature): Promise<{ kind: string; kid: string; have: number; released: boolean }> {
    return this.#call('POST', `/v1/batches/${batchId}/approve`, { kid, sig: base64url(sig) });
  }

  async approve(batch: Held, ...by: Approver[]): Promise<void> {
    for (const approver of by) await this.send(batch, await this.sign(batch, approver));
  }

  /** The first set, or the next one, signed by these; until every machine enforces it. */
  async introduce(approvers: readonly Approver[], epoch: number, by: readonly Approver[]): Promise<void> {
    const quorum = quorumOfApprovers({ approvers, approverSetEpoch: epoch });
    const { trustDomain } = this.insider.bundle();
    const signatures = await Promise.all(by.map(({ signer }) => signApproverSet(signer, { epoch, quorum, trustDomain })));
    const change = {
      epoch,
      approvers: approvers.map(({ signer }) => Buffer.from(signer.spki).toString('base64')),
      threshold: 2,
      tiers: [],
      unbatchedPerHour: 0,
      signatures: signatures.map(({ kid, sig }) => ({ kid, sig: base64url(sig) })),
    };
    await this.stack.client.workflow.execute('rotateApproverSet', {
      workflowId: workflowIds.rotateApproverSet,
      taskQueue: taskQueues.control,
      args: [{ actor: 'olga', reason: 'who approves', change }],
    });
  }

  query(text: string, ...values: unknown[]): Promise<Record<string, unknown>[]> {
    return this.stack.db.query({ text }, values);
  }

  /** The wall clock of every process of the control plane, by so much. */
  async moveClock(byMs: number): Promise<void> {
    writeFileSync(this.#clock, String(byMs));
    const taken = (victim: Victim): boolean => findText(`${this.#clock}.${this.stack.pidOf(victim)}`) === String(byMs);
    await eventually('every process has taken the time', () => movedProcesses.every(taken), patienceMs);
  }

  /** Ends the session of a daemon, which is welcomed anew. */
  async redial(node: string): Promise<void> {
    await this.stack.daemon(node).stop();
    await this.stack.daemon(node).start();
  }

  /** How often a machine has booted anew, by its own log. */
  boots(node: string): number {
    return this.stack.daemon(node).log().split('simulated reboot').length - 1;
  }

  /** Waits until the command has ended. */
  end(id: string): Promise<CommandAnswer> {
    const look = async () => (await this.stack.api.getCommands(id)).find(({ finishedAt }) => finishedAt !== null);
    return eventually(`the end of ${id}`, look, patienceMs);
  }

  /** What a workflow failed with, all of it. */
  async failureOf(workflowId: string): Promise<string> {
    return this.stack.client.workflow
      .getHandle(workflowId)
      .result()
      .then(
        () => '',
        (error: unknown) => messagesOf(error).join(': '),
      );
  }

  /** Asserts that the machine itself refused it, for this reason, in its log and in what operators see. */
  async refusedByMachine(commandId: string, verdict: RegExp): Promise<void> {
    const { state, rejectReason, nodeId } = await this.end(commandId);
    assert.equal(state, 'rejected', `${commandId}: ${rejectReason}`);
    assert.match(rejectReason ?? '', verdict);
    const log = this.stack.daemon(nodeId).log().split('\n');
    const said = log.filter((line) => line.includes(`"commandId":"${commandId}"`)).join('\n');
    assert.match(said, /"msg":"refused"/);
    assert.doesNotMatch(said, /command accepted/);
  }

  /** Waits until the workflow of a batch has failed for this reason: its release was refused. */
  async releaseRefused({ batchId, workflowId }: Held, why: RegExp): Promise<void> {
    const handle = this.stack.client.workflow.getHandle(workflowId);
    await eventually(`the refusal of ${batchId}`, async () => (await handle.describe()).status.name === 'FAILED', patienceMs);
    assert.match(await this.failureOf(workflowId), why);
  }

  /** Asserts that a command is unsigned and without a place in the log of its machine. */
  async isHeld(commandId: string): Promise<void> {
    const [row] = await this.query(
      'select length(signature) as signed, state, seq < 0 as held from node_commands where id = $1',
      commandId,
    );
    assert.deepEqual(row, { signed: 0, state: 0, held: true });
  }

  /** Waits until a held command is signed and in the log of its machine. */
  async released(commandId: string): Promise<void> {
    const look = async () => (await this.query('select 1 from node_commands where id = $1 and seq > 0', commandId)).length > 0;
    await eventually(`the release of ${commandId}`, look, patienceMs);
  }

  /** Waits until a command is done, and sees its machine boot for it once. */
  async runs(node: string, asked: () => Promise<string>): Promise<void> {
    const before = this.boots(node);
    const { state, rejectReason } = await this.end(await asked());
    assert.equal(state, 'done', rejectReason ?? '');
    assert.equal(this.boots(node), before + 1);
  }

  /** Asserts that none of the machines boots meanwhile, by its own word, and that each of them takes commands behind it. */
  async nothingHappens(during: () => Promise<void>): Promise<void> {
    const before = nodes.map((node) => this.boots(node));
    await during();
    const asked = { nodes: [...nodes], kind: 'inventory.refresh', payload: {}, actor: 'olga' };
    const { workflowId } = await this.stack.api.runCommands(asked);
    const result = (await this.stack.client.workflow.getHandle(workflowId).result()) as { states: Record<string, number> };
    assert.deepEqual(result.states, { done: nodes.length });
    assert.deepEqual(
      nodes.map((node) => this.boots(node)),
      before,
      'a machine booted',
    );
  }
}
