/** A machine that is let to a tenant as a whole, and taken back. */
import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { commandKinds, type NodeRole } from '../../domain/commands/kinds.ts';
import { day, hour } from '../../domain/time.ts';
import { readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { nodeIdentityOf, parseCertificate, verifyChain } from '../../pki/x509/index.ts';
import { protocolRegistry } from '../../proto/index.ts';
import { enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { endIdentity } from '../../services/revocation.ts';
import { endTenantLease, issueTenantIdentity, type TenantIdentityOptions } from '../../services/tenant-identity.ts';
import { useDatabase } from '../harness/postgres.ts';
import { certificatesOf } from './identity-support.ts';
import { addNode, authorityOf, command, connect, csrOf, enrol, keyring, newKey, refused, t0, testBundle, trustDomain } from './support.ts';

describe('a machine that is let to a tenant', () => {
  const used = useDatabase();

  const order = async (nodeId: string, changes: Partial<TenantIdentityOptions> = {}): Promise<TenantIdentityOptions> => ({
    db: used.db,
    trustDomain,
    nodeCa: authorityOf(await testBundle()),
    nodeId,
    csr: await csrOf(newKey()),
    actor: 'olga',
    reason: 'lease 17',
    now: t0,
    ...changes,
  });

  it('REV-006 ID-032 A-PKI-24 revokes the platform’s identity and begins the tenant’s, in role node-tenant, for a day', async () => {
    const node = await enrol(used.db, 'let-1');
    await connect(used.db, node);
    const worker = await keyring(used.db);
    await enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands: [command('let-1', { id: 'before/let-1' })] });
    const { chain, generation, notAfter } = await issueTenantIdentity(await order('let-1'));
    const anchors = [(await testBundle()).nodeCa.certificate.der];
    const { leaf } = verifyChain([...chain], { anchors, now: t0, purpose: 'client' });
    const { role, nodeId } = nodeIdentityOf(leaf, trustDomain);
    assert.deepEqual([role, nodeId, generation, notAfter - t0], ['node-tenant', 'let-1', 2, day]);
    const rows = await certificatesOf(used.db, 'let-1');
    assert.deepEqual(
      rows.map(({ revoked, generation: of }) => [of, revoked]),
      [
        [1, true],
        [2, false],
      ],
    );
    assert.equal((await findCommand(used.db, 'before/let-1'))?.state, 'cancelled', 'what the platform had sent is void');
    assert.deepEqual((await readNodeFacts(used.db, ['let-1'])).get('let-1')?.role, 'node-tenant');
    const [event] = await used.db.query<{ action: string; details: { reason: string } }>({
      text: `select action, details from audit_events where key = 'node/let-1/revoke/2'`,
    });
    assert.deepEqual([event?.action, event?.details.reason], ['node.dedicate', 'lease 17']);
  });

  it('the same order again is the same lease; another key waits for the machine to be reclaimed', async () => {
    await enrol(used.db, 'let-2');
    const first = await order('let-2');
    const [one, two] = [await issueTenantIdentity(first), await issueTenantIdentity(first)];
    assert.deepEqual(two, one);
    await assert.rejects(
      issueTenantIdentity(await order('let-2')),
      refused('CONFLICT', /is let already, under another key/, 'let-already'),
    );
    const many = await Promise.all(Array.from({ length: 8 }, () => issueTenantIdentity(first)));
    assert.ok(many.every(({ generation }) => generation === 2));
    assert.equal((await certificatesOf(used.db, 'let-2')).filter(({ issued, revoked }) => issued && !revoked).length, 1);
  });

  it('REV-004 a reclaim revokes the tenant’s identity, and the machine is the platform’s again', async () => {
    await enrol(used.db, 'let-3');
    const { chain } = await issueTenantIdentity(await order('let-3'));
    const reclaim = { db: used.db, nodeId: 'let-3', actor: 'olga', reason: 'lease 17 ended', now: t0 + hour };
    const { serials } = await endTenantLease(reclaim);
    assert.deepEqual(serials, [parseCertificate(chain[0] as Uint8Array).serial]);
    const node = (await readNodeFacts(used.db, ['let-3'])).get('let-3');
    assert.deepEqual([node?.role, node?.state, node?.identityGeneration], ['node', 'active', 3]);
    await assert.rejects(endTenantLease(reclaim), refused('INVALID_STATE', /is not let to a tenant/, 'not-let'));
    assert.equal((await issueTenantIdentity(await order('let-3', { now: t0 + hour }))).generation, 4, 'and can be let anew');
  });

  it('lets no site agent, no ramdisk, nothing that is quarantined, deleted or unknown', async () => {
    for (const role of ['site', 'ramdisk'] as const) {
      await enrol(used.db, `let-${role}`, { role });
      await assert.rejects(issueTenantIdentity(await order(`let-${role}`)), refused('INVALID_STATE', /cannot be let/, 'not-to-let'));
    }
    await enrol(used.db, 'let-4');
    await used.db.query({ text: `update nodes set state = 'quarantined' where id = 'let-4'` });
    await assert.rejects(issueTenantIdentity(await order('let-4')), refused('INVALID_STATE', /it is quarantined/, 'not-to-let'));
    const reclaim = { nodeId: 'let-4', why: 'reclaim', actor: 'olga', reason: 'r', now: t0 } as const;
    await assert.rejects(
      used.db.transaction((tx) => endIdentity(tx, reclaim)),
      refused('INVALID_STATE', /is quarantined/, 'node-quarantined'),
    );
    await assert.rejects(issueTenantIdentity(await order('let-none')), refused('NOT_FOUND', /no node is called let-none/, 'unknown-node'));
  });

  it('ID-033 no command of the platform is for a tenant’s machine, no destructive one above all: refused before it is signed', async () => {
    await addNode(used.db, 'let-5', 'node-tenant');
    const worker = await keyring(used.db);
    for (const [kind, spec] of Object.entries(commandKinds)) {
      assert.equal((spec.roles as readonly NodeRole[]).includes('node-tenant'), false, kind);
      const schema = protocolRegistry.getMessage(spec.payload);
      assert.ok(schema);
      const payload = toBinary(AnySchema, anyPack(schema, create(schema)));
      const commands = [command('let-5', { kind, payload })];
      const enqueued = enqueueCommands({ db: used.db, worker, trustDomain, now: t0, commands });
      await assert.rejects(enqueued, refused('INVALID_INPUT', /is not for nodes of role node-tenant/, 'wrong-role'), kind);
    }
  });
});
