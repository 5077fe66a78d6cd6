/** Evidence of what approvers decided: who reads it counts them again. */
import assert from 'node:assert/strict';
import {
  type ApproverSetEvidence,
  type BatchEvidence,
  createQuorumEvidence,
  digestInEvidence,
  parseQuorumEvidence,
  type QuorumFacts,
  setInEvidence,
} from '../../../pki/audit/quorum-evidence.ts';
import { isQuorumEvidence, verifyQuorumEvidence } from '../../../pki/audit/verify-quorum-evidence.ts';
import { approveBatchFacts, approveSet, createApprover, setOf, trustDomain } from '../../workflows/approvers.ts';
import { createAuditKey } from './support.ts';

const key = createAuditKey();
const [ann, bob, cho, dee] = [createApprover(), createApprover(), createApprover(), createApprover()];
const held = setOf([ann, bob, cho], 2, 1);
const next = setOf([bob, cho, dee], 2, 2);
const root = 'ab'.repeat(32);
const at = Date.UTC(2030, 0, 1);

async function batchFacts(changes: Partial<BatchEvidence> = {}, batch: Partial<BatchEvidence['batch']> = {}): Promise<BatchEvidence> {
  const facts = { batchId: 'b-1', root: Buffer.from(root, 'hex'), size: 6, notAfterMs: at, trustDomain };
  return {
    about: 'batch',
    id: 'b-1',
    trustDomain,
    at,
    actor: 'system',
    set: setInEvidence(held),
    signatures: [await approveBatchFacts(ann, facts), await approveBatchFacts(cho, facts)],
    batch: {
      tenant: 'default',
      state: 'approved',
      root,
      size: 6,
      required: 2,
      notAfter: at,
      reason: 'firmware',
      createdBy: 'olga',
      createdByAgent: null,
      delegation: null,
      closedBy: '',
      closeReason: '',
      ...batch,
    },
    commands: [{ state: 'done', count: 6 }],
    ...changes,
  };
}

const setFacts = async (changes: Partial<ApproverSetEvidence> = {}): Promise<ApproverSetEvidence> => ({
  about: 'approver-set',
  id: 'rotate-approver-set/r',
  trustDomain,
  at,
  actor: 'ann',
  from: setInEvidence(held),
  to: setInEvidence(next),
  signatures: [await approveSet(bob, next, { epoch: 2 }), await approveSet(cho, next, { epoch: 2 })],
  publishedVersion: 7,
  fleet: [{ nodeId: 'node-1', epoch: 2, sha256: digestInEvidence(setInEvidence(next)) }],
  overrides: [],
  ...changes,
});

async function verdictOf(facts: QuorumFacts): Promise<string[]> {
  const signed = await createQuorumEvidence({ signer: key.signer, facts });
  return verifyQuorumEvidence([signed], { auditKey: key.spki, pin: key.pin }).problems.map(({ check, message }) => `${check}: ${message}`);
}

describe('evidence of a quorum', () => {
  it('H-17 of a batch: the approvers are counted again from their signatures', async () => {
    const signed = await createQuorumEvidence({ signer: key.signer, facts: await batchFacts() });
    assert.ok(isQuorumEvidence([signed]));
    const { valid, approvedBy, problems } = verifyQuorumEvidence([signed], { auditKey: key.spki, pin: key.pin });
    assert.deepEqual([valid, approvedBy, problems], [true, [ann.kid, cho.kid], []]);
  });

  it('H-17 a batch that says it was approved proves nothing by saying so', async () => {
    const { signatures, ...rest } = await batchFacts();
    const short = /keys: 1 of 2 approvers signed it, and commands went out/;
    assert.match(String(await verdictOf({ ...rest, signatures: signatures.slice(0, 1) })), short);
    assert.match(String(await verdictOf({ ...rest, signatures: [signatures[0]!, signatures[0]!] })), short);
    assert.match(String(await verdictOf(await batchFacts({}, { size: 7 }))), /0 of 2/);
    assert.match(String(await verdictOf(await batchFacts({}, { root: 'cd'.repeat(32) }))), /0 of 2/);
    assert.match(String(await verdictOf(await batchFacts({ trustDomain: 'staging.example' }))), /0 of 2/);
    assert.match(
      String(await verdictOf(await batchFacts({}, { required: 1 }).then((facts) => ({ ...facts, signatures: signatures.slice(0, 1) })))),
      short,
      'a low count in the row is not the set’s',
    );
    assert.deepEqual(
      await verdictOf({
        ...rest,
        signatures: [],
        batch: { ...rest.batch, state: 'expired' },
        commands: [{ state: 'cancelled', count: 6 }],
      }),
      [],
    );
  });

  it('H-17 of a change: the old threshold, the new one, and what every machine enforced', async () => {
    assert.deepEqual(await verdictOf(await setFacts()), []);
    assert.match(
      String(
        await verdictOf(
          await setFacts({ signatures: [await approveSet(bob, next, { epoch: 2 }), await approveSet(dee, next, { epoch: 2 })] }),
        ),
      ),
      /keys: 1 of 2 approvers of the current set/,
    );
    const behind = { fleet: [{ nodeId: 'node-1', epoch: 1, sha256: digestInEvidence(setInEvidence(held)) }] };
    assert.match(String(await verdictOf(await setFacts(behind))), /fleet: 1 machine\(s\) enforce another set: node-1/);
    const excluded = { ...behind, overrides: [{ kind: 'exclude' as const, subject: 'node-1', actor: 'ann', reason: 'scrapped', at }] };
    assert.deepEqual(await verdictOf(await setFacts(excluded)), []);
  });

  it('H-17 refuses another key, another pin, a changed byte, and what is no such document', async () => {
    const signed = await createQuorumEvidence({ signer: key.signer, facts: await batchFacts() });
    const other = createAuditKey();
    assert.throws(() => verifyQuorumEvidence([signed], { auditKey: other.spki, pin: key.pin }), /not by the pinned audit key/);
    assert.throws(() => verifyQuorumEvidence([], { auditKey: key.spki, pin: key.pin }), /holds 0 documents, not one/);
    const text = Buffer.from(signed.document).toString().replace('"firmware"', '"hardware"');
    const changed = verifyQuorumEvidence([{ ...signed, document: Buffer.from(text) }], { auditKey: key.spki, pin: key.pin });
    assert.deepEqual(
      changed.problems.map(({ check }) => check),
      ['signature'],
    );
    assert.equal(isQuorumEvidence([{ document: Buffer.from('{}') }]), false);
    assert.throws(() => parseQuorumEvidence(Buffer.from('{}')), /not the evidence of a quorum: /);
  });
});
