/** The gate of a switch asks every kind of machine that holds a session. */
import assert from 'node:assert/strict';
import type { NodeRole } from '../../domain/commands/kinds.ts';
import { judgeFleet } from '../../domain/rotation/gates.ts';
import { fleetFacts } from '../../drizzle/queries/sessions.ts';
import { useDatabase } from '../harness/postgres.ts';
import { connect, enrol, t0 } from '../services/support.ts';

describe('the fleet gate and the roles', () => {
  const used = useDatabase();
  const roles: readonly NodeRole[] = ['node', 'site', 'ramdisk', 'node-tenant'];

  it('ROT-004 ROT-020 C02 a session of each role blocks the switch alone', async () => {
    const open = new Map<NodeRole, Awaited<ReturnType<typeof enrol>>>();
    for (const role of roles) {
      const node = await enrol(used.db, `behind-${role}`);
      await used.db.query({ text: 'update nodes set role = $2 where id = $1' }, [node.id, role]);
      open.set(role, node);
    }
    const report = async (version: (role: NodeRole) => number): Promise<string> => {
      for (const [role, node] of open) await connect(used.db, node, { role, trustVersion: version(role) });
      const verdict = judgeFleet(await fleetFacts(used.db, { version: 2, now: t0 }), { version: 2, now: t0 });
      return verdict.kind === 'open' ? 'open' : verdict.message;
    };
    for (const late of roles) {
      assert.equal(await report((role) => (role === late ? 1 : 2)), `1 of 4 connected node(s) have not applied it (behind-${late} at 1)`);
    }
    assert.equal(await report(() => 2), 'open');
  });
});
