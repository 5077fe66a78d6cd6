/** What doctor says of machines: judged from facts, and the facts read from a real database. */
import assert from 'node:assert/strict';
import { judgeMachines } from '../../cli/doctor/judge-machines.ts';
import { hour, minute } from '../../domain/time.ts';
import { type MachineHealth, readMachineHealth } from '../../services/metal/health.ts';
import { addMachine } from '../../services/metal/machines.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addBootEntry } from '../services/metal-rows.ts';
import { connect, enrol, t0 } from '../services/support.ts';

const now = t0;
const well: MachineHealth = { silentSites: [], halfRotated: [], quarantined: [], shared: [], openRuns: [] };
const judge = (over: Partial<MachineHealth>, machines = 3) =>
  judgeMachines({ ...well, ...over }, { machines, now }).map(({ id, severity, message, fix }) => `${severity} ${id}: ${message} → ${fix}`);

describe('what doctor says of machines', () => {
  it('is silent without machines, and content with those that are well', () => {
    assert.deepEqual(judge({}, 0), []);
    assert.deepEqual(judge({}), ['ok metal: 3 machine(s), 0 open run(s), every site has an agent → ']);
  });

  it('a site without a live agent is a warning, and an error while runs stand still there', () => {
    const site = { siteId: 'hel-1', machines: 12, agents: 2, openRuns: 0 };
    const [quiet, standing, none] = judge({
      silentSites: [site, { ...site, openRuns: 3 }, { siteId: 'osl-2', machines: 1, agents: 0, openRuns: 0 }],
    });
    assert.match(quiet ?? '', /^warning metal\.site-silent: site hel-1 has 2 agent\(s\), none of which is connected: its 12 machine\(s\)/);
    assert.match(standing ?? '', /^error metal\.site-silent: .*, and 3 run\(s\) stand still → start bcd site on a host of hel-1/);
    assert.match(none ?? '', /site osl-2 has no agent: .* → better-compute tokens create --site osl-2 --role site/);
  });

  it('a password that is half changed, and machines in quarantine, each with the way out', () => {
    assert.deepEqual(judge({ halfRotated: ['m-1', 'm-2'] }), [
      "warning metal.credentials-half-rotated: the controller's password of m-1, m-2 is half changed: both the old and the next one are stored, and no run goes on with it → better-compute machine rotate-bmc m-1 --reason <why> tries both, two logins at most",
    ]);
    const dirty = Array.from({ length: 7 }, (_, at) => ({ id: `m-${at}`, reason: 'dirty: no evidence', since: now - 2 * hour }));
    assert.deepEqual(judge({ quarantined: dirty }), [
      'warning metal.quarantined: 7 machine(s) in quarantine, the oldest for 2 h 0 min: m-0, m-1, m-2, m-3, m-4 and 2 more (m-0: dirty: no evidence) → docs/runbooks/machine-dirty.md',
    ]);
  });

  it('M59 values that several machines say, with who says them', () => {
    const [found] = judge({
      shared: [
        { value: 'serial:CHASSIS-9', machineIds: ['m-1', 'm-2'] },
        { value: 'mac:b8:3f:d2:aa:00:20', machineIds: ['m-3', 'm-4'] },
      ],
    });
    assert.match(
      found ?? '',
      /^warning metal\.identity-shared: 2 value\(s\) are said by more than one machine .*: serial CHASSIS-9 of m-1, m-2, mac b8:3f:d2:aa:00:20 of m-3, m-4 → better-compute machine show m-1;/,
    );
  });

  it('a run that is at its step for longer than the step may take: no workflow carries it', () => {
    const run = {
      id: 'r',
      machineId: 'm-1',
      kind: 'inspect' as const,
      profile: null,
      startedAt: now,
      step: 'inventory',
      stepSince: now - 5 * minute,
    };
    assert.match(judge({ openRuns: [run] })[0] ?? '', /^ok /);
    assert.match(
      judge({ openRuns: [{ ...run, stepSince: now - 2 * hour }] })[0] ?? '',
      /^error metal\.run-overdue: the inspect run of m-1 is at step inventory for 2 h 0 min, .* → better-compute stuck; if its workflow is gone: better-compute machine give-up m-1/,
    );
    assert.match(judge({ openRuns: [{ ...run, step: null, stepSince: null }] })[0] ?? '', /^ok /, 'before its first step');
    const many = Array.from({ length: 8 }, () => ({ ...run, stepSince: now - 2 * hour }));
    assert.deepEqual([judge({ openRuns: many }).length, /and 3 more/.test(judge({ openRuns: many })[5] ?? '')], [6, true]);
  });

  describe('over a database', () => {
    const used = useDatabase();

    it('reads sites without an agent, passwords half changed, quarantine, and the step of each run', async () => {
      const add = (id: string, siteId: string, bmcAddress: string) =>
        addMachine(used.db, { id, siteId, bmcAddress }, { actor: 'ann', now });
      await add('m-1', 'berlin', '10.0.0.1');
      await add('m-2', 'berlin', '10.0.0.2');
      await add('m-3', 'oslo', '10.0.0.3');
      const { runId } = await addBootEntry(used.db, { nodeId: 'm-1' });
      await used.db.query(
        {
          text: `insert into metal_run_steps (run_id, step, attempt, state, actor, started_at) values ($1, 'boot', 1, 'started', 'w', $2)`,
        },
        [runId, new Date(now)],
      );
      await used.db.query({ text: `update machines set state = 'quarantined', state_reason = 'dirty' where id = 'm-2'` });
      const secret = (path: string, version: number, sealed: Buffer | null) =>
        used.db.query({ text: `insert into secrets (path, version, sealed, created_by) values ($1, $2, $3, 'w')` }, [
          path,
          version,
          sealed,
        ]);
      await secret('bmc/m-2/next', 1, Buffer.from('x'));
      await secret('bmc/m-3/next', 1, Buffer.from('x'));
      await secret('bmc/m-3/next', 2, null);
      const says = (id: string, source: string, value: string) =>
        used.db.query(
          {
            text: `insert into machine_identities (machine_id, source, value, origin, first_seen_at, last_seen_at) values ($1, $2, $3, 'controller', now(), now())`,
          },
          [id, source, value],
        );
      for (const id of ['m-1', 'm-2', 'm-3']) {
        await says(id, 'redfish-drive-serial', 'COPIED');
        await says(id, 'model', 'R750');
      }
      await says('m-1', 'redfish-system-serial', 'CHASSIS-9');
      await says('m-3', 'dmi-serial', 'CHASSIS-9');
      const before = await readMachineHealth(used.db, now);
      assert.deepEqual(before.shared, [{ value: 'serial:CHASSIS-9', machineIds: ['m-1', 'm-3'] }]);
      assert.deepEqual(before.silentSites, [
        { siteId: 'berlin', machines: 2, agents: 0, openRuns: 1 },
        { siteId: 'oslo', machines: 1, agents: 0, openRuns: 0 },
      ]);
      assert.deepEqual([before.halfRotated, before.quarantined.map(({ id, reason }) => [id, reason])], [['m-2'], [['m-2', 'dirty']]]);
      assert.deepEqual(
        before.openRuns.map(({ id, machineId, step, stepSince }) => [id, machineId, step, stepSince]),
        [[runId, 'm-1', 'boot', now]],
      );
      const agent = await enrol(used.db, 'agent-1', { role: 'site' });
      await connect(used.db, agent, { role: 'site' });
      const after = await readMachineHealth(used.db, now);
      assert.deepEqual(
        after.silentSites.map(({ siteId }) => siteId),
        ['oslo'],
      );
    });
  });
});
