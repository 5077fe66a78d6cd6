/** Alice at her desk, before an api that lies to her: what she runs, what the api is made to say, and that nothing was signed. */
import assert from 'node:assert/strict';
import { createDesk, createHostileApi, type Desk, type HostileApi, honest, type Run, type WireLeaf } from './hostile-api.ts';

export interface Approver {
  readonly api: HostileApi;
  readonly desk: Desk;
  /** `batch approve bat_1 --yes` with her key. */
  approve(...flags: string[]): Promise<Run>;
  /** Changes what the api says about the batch. */
  bend(change: Record<string, unknown>): void;
  /** An honest batch of these leaves. */
  tell(leaves: readonly WireLeaf[]): void;
  /** Refused with these words, and nothing was signed: nothing was sent, and nothing was printed that could be a signature. */
  refuses(run: Promise<Run>, message: RegExp, exitCode?: number): Promise<Run>;
  close(): Promise<void>;
}

export async function createApprover(): Promise<Approver> {
  const api = await createHostileApi();
  const desk = createDesk(api);
  assert.equal((await desk.run('keygen', '--out', desk.path('alice.pem'))).exitCode, 0);
  return {
    api,
    desk,
    approve: (...flags) => desk.run('approve', 'bat_1', '--key', desk.path('alice.pem'), '--yes', ...flags),
    bend: (change) => {
      api.batch = { ...api.batch, ...change };
    },
    tell: (leaves) => void Object.assign(api, honest(leaves)),
    refuses: async (run, message, exitCode = 4) => {
      const done = await run;
      assert.match(done.err, message);
      assert.equal(done.exitCode, exitCode, done.err);
      assert.deepEqual([api.approvals, api.sent], [[], []]);
      assert.doesNotMatch(done.out, /[A-Za-z0-9_-]{86}/);
      return done;
    },
    close: async () => {
      desk.close();
      await api.close();
    },
  };
}
