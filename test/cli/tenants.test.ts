/** `better-compute tenants`: options and a real server's answers → output. */
import assert from 'node:assert/strict';
import { tenantsCreateRun } from '../../cli/commands/tenants/create.ts';
import { tenantsDeleteRun } from '../../cli/commands/tenants/delete.ts';
import { tenantsListRun } from '../../cli/commands/tenants/list.ts';
import { createDeployment, type FakeDeployment, type RunningApi, startApi } from '../api/support.ts';
import { createTestIo, createTestPorts, envFor } from './support.ts';

describe('tenants', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;
  beforeEach(async () => {
    deployment = createDeployment();
    api = await startApi(deployment);
  });
  afterEach(() => api.close());
  const set = () => {
    const io = createTestIo({ env: envFor(api.url) });
    return { io, ports: createTestPorts(io) };
  };

  it('are created, listed and deleted', async () => {
    const made = set();
    await tenantsCreateRun({ json: false, id: 'acme', actor: 'ann' }, made.ports);
    assert.equal(made.io.stdout(), 'acme\n');
    const listed = set();
    await tenantsListRun({ json: false }, listed.ports);
    assert.match(listed.io.stdout(), /^TENANT {2}STATE {3}MACHINES {2}SINCE *\nacme {4}active {2}0 {9}2030-01-01T12:00:00Z\n$/);
    const json = set();
    await tenantsListRun({ json: true }, json.ports);
    assert.deepEqual(
      (json.io.json() as { tenants: { id: string }[] }).tenants.map(({ id }) => id),
      ['acme'],
    );
    const gone = set();
    await tenantsDeleteRun({ json: false, id: 'acme', actor: 'ann', yes: true }, gone.ports);
    assert.equal(gone.io.stdout(), 'deleted acme; 2 open batch(es) cancelled\n');
  });

  it('a tenant is deleted only by whoever says so', async () => {
    await assert.rejects(tenantsDeleteRun({ json: false, id: 'acme', actor: 'ann', yes: false }, set().ports), /yes/);
  });
});
