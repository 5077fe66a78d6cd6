/**
 * Whoever writes the database, seen from the machine: rows of a batch go through the gateway's own code, over real TLS, to a daemon that
 * holds the approvers. What stands in the rows is edited as an adversary would.
 */
import assert from 'node:assert/strict';
import { toBinary } from '@bufbuild/protobuf';
import { hour } from '../../domain/time.ts';
import { BatchApprovalSchema, BatchProofSchema, type Command, SignatureSchema } from '../../proto/index.ts';
import { type Member, startMember } from '../fakes/fleet.ts';
import { MemoryStore } from '../gateway/memory-store.ts';
import { reboot } from '../harness/approvers.ts';
import { commandOf, joinedNode } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type Cast, createCast } from './quorum-scenarios.ts';
import { publishTrust, type RealGateway, startRealGateway } from './real-gateway.ts';
import { quickBackoff, setStage } from './stage.ts';

describe('a batch through the gateway’s own code, its rows edited', () => {
  const stage = setStage();
  let cast: Cast;
  let store: MemoryStore;
  let gateway: RealGateway;
  let member: Member;
  before(() => {
    cast = createCast(stage.deployment);
  });
  beforeEach(async () => {
    store = new MemoryStore();
    await publishTrust(stage.deployment, store, cast.trust);
    gateway = await startRealGateway(stage.deployment, { store });
    member = startMember({
      identity: await joinedNode(stage.deployment, { gatewayUrl: gateway.url, trust: cast.trust }),
      limits: quickBackoff,
    });
    stage.running.push(gateway, member);
    await eventually('connected', () => member.agent.link.current !== undefined);
  });

  /** A row as release makes it, with what the test says in place of it. */
  function put(id: string, command: Command): void {
    const { body, signature, batchApproval, batchProof } = command;
    const row = store.enqueue('node-1', { id, kind: 'node.reboot', lane: 'power' });
    Object.assign(row, {
      body,
      signature: signature === undefined ? new Uint8Array() : toBinary(SignatureSchema, signature),
      approval: batchApproval === undefined ? null : toBinary(BatchApprovalSchema, batchApproval),
      proof: batchProof === undefined ? null : toBinary(BatchProofSchema, batchProof),
      deadline: Date.now() + hour,
    });
    gateway.gateway.sessions.poke(['node-1']);
  }
  const ran = (id: string): Promise<unknown> => eventually(`${id} ran`, () => store.results.has(id));
  async function refusedFor(id: string): Promise<string> {
    await eventually(`${id} was judged`, () => store.stateOf(id) === 6);
    return member.status().lastRefusal?.detail.split(':')[0] ?? '';
  }

  it('runs what was approved, once, and answers for it over a new connection', async () => {
    const batch = await cast.batch({ leaves: [reboot('node-1'), reboot('node-2')] });
    put('c-1', await cast.member(batch, { id: 'c-1' }));
    await ran('c-1');
    gateway.gateway.sessions.destroyAll();
    await eventually('connected again', () => member.agent.link.current !== undefined);
    put('c-2', await cast.member(batch, { id: 'c-2' }));
    assert.equal(await refusedFor('c-2'), 'leaf-used');
    assert.deepEqual([...member.effects], [['c-1', 1]]);
  });

  it('BAT-024 a destructive row without a batch, written past the check of the queue, meets the machine’s own count', async () => {
    put('bare', await commandOf(stage.deployment, { id: 'bare', kind: 'node.reboot' }));
    assert.equal(await refusedFor('bare'), 'unbatched-limit');
    assert.deepEqual([member.status().lastRefusal?.reason, member.effects.size], ['command-unbatched-limit', 0]);
  });

  it('refuses every edit of a row by its own word, and still runs the genuine one', async () => {
    const batch = await cast.batch({ leaves: [reboot('node-1'), reboot('node-2')] });
    const other = await cast.batch({ batchId: 'other', leaves: [reboot('node-1')] });
    const alone = await cast.batch({ batchId: 'alone', by: [cast.anna] });
    const edits: [what: string, command: Command, word: string][] = [
      ['flips approved without an approval', await cast.member(alone), 'too-few-approvals'],
      ['takes the approval of another batch', Object.assign(await cast.member(batch), { batchApproval: other.approval }), 'batch-differs'],
      [
        'moves the member to another leaf',
        Object.assign(await cast.member(batch), { batchProof: batch.proofOf('node-2') }),
        'not-in-scope',
      ],
      ['puts a command under a batch it is not in', await cast.member(batch, { body: { batchId: 'other' } }), 'batch-differs'],
    ];
    for (const [n, [what, command, word]] of edits.entries()) {
      put(`edit-${n}`, command);
      assert.equal(await refusedFor(`edit-${n}`), word, what);
    }
    const changed = await cast.member(batch);
    put('payload', Object.assign(changed, { body: Buffer.concat([changed.body, Buffer.from([0xc2, 0x3e, 0x01, 0x2a])]) }));
    await eventually('it was judged', () => store.stateOf('payload') === 6);
    assert.equal(member.status().lastRefusal?.reason, 'command-bad-signature');
    assert.equal(member.effects.size, 0);
    put('genuine', await cast.member(batch, { id: 'genuine' }));
    await ran('genuine');
  });
});
