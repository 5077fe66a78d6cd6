/** A gateway that leaves while daemons arrive: whatever the moment, each is either told to dial again or was never let in. */
import assert from 'node:assert/strict';
import { nodeLeaf, TestAgent, type TestLeaf } from '../harness/agent.ts';
import { turns } from './manual-scheduler.ts';
import { startGateway } from './start-gateway.ts';

const isNightly = process.env['BC_TEST_NIGHTLY'] === '1';
const rounds = isNightly ? 1_000 : 40;

/** How the call of a daemon that arrived around the drain came out. */
async function outcomeOf(port: number, leaf: TestLeaf): Promise<string> {
  const agent = new TestAgent({ port, leaf });
  agent.session.on('error', () => undefined);
  agent.hello();
  const first = await agent.next();
  let outcome: string;
  if (first === null) {
    const { status, reason } = await agent.ended;
    outcome = status === null ? 'never let in' : `refused ${status} ${reason ?? ''}`;
  } else {
    const drained = await agent.until('drain').then(
      () => true,
      () => false,
    );
    agent.call.halfClose();
    const { status } = await agent.ended;
    outcome = `${first.frame.case ?? 'nothing'}, ${drained ? 'drain' : 'no drain'}, ${status ?? 'cut'}`;
  }
  agent.close();
  return outcome;
}

describe('a drain among arrivals', () => {
  it(`B21 ${rounds} drains with concurrent opens: no daemon sees anything but a wish to dial again`, async () => {
    const { authorities, gateway: spare } = await startGateway();
    await spare.close();
    const leaves = await Promise.all(Array.from({ length: 5 }, (_, at) => nodeLeaf(authorities, `node-${at}`)));
    const seen = new Map<string, number>();
    for (let round = 0; round < rounds; round += 1) {
      const { gateway, port, store } = await startGateway({ authorities });
      const opens = leaves.map((leaf) => outcomeOf(port, leaf));
      // From before the first handshake to after the last Welcome, a little later each round.
      await turns((round * 3) % 60);
      const drained = gateway.drain({ windowMs: 50, endAfterMs: 500 });
      for (const outcome of await Promise.all(opens)) seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
      await drained;
      assert.equal(store.sessions.filter(({ endedAs }) => endedAs === null).length, 0, `round ${round}: every session has its end`);
    }
    const allowed = new Set(['never let in', 'refused 14 draining', 'welcome, drain, 0', 'welcome, drain, 14']);
    assert.deepEqual(
      [...seen].filter(([outcome]) => !allowed.has(outcome)),
      [],
    );
    assert.ok((seen.get('welcome, drain, 0') ?? 0) > 0 && seen.size > 1, `the drains met arrivals: ${JSON.stringify([...seen])}`);
  }).timeout(isNightly ? 600_000 : 60_000);
});
