/** The bundle a worker runs never goes back to an older one because two readings crossed. */
import assert from 'node:assert/strict';
import { addCommandRoot, createBundle, encodeBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { holdBundle } from '../../workers/bundle-holder.ts';

const unused = (): never => assert.fail('no key of this bundle is kept elsewhere');
const noSigners = { signerOf: unused, find: unused, create: unused };
const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

describe('the key bundle of a worker', () => {
  it('H-02 a reading that began before a write and ends after it does not take the written bundle away', async () => {
    const stored = { text: encodeBundle(await createBundle({ trustDomain: 'fleet.example', now: 0 }), { plaintext: true }), revision: 1 };
    let delay: Promise<void> | undefined;
    const store = {
      read: async () => {
        const found = { text: stored.text, revision: String(stored.revision) };
        const waiting = delay;
        delay = undefined;
        await waiting;
        return found;
      },
      replace: async (text: string) => {
        Object.assign(stored, { text, revision: stored.revision + 1 });
        return { revision: String(stored.revision) };
      },
      watch: () => ({ close: () => undefined }),
    };
    const holder = await holdBundle({ store, secret: undefined, signers: noSigners, log: silent });
    const seen: number[] = [];
    holder.onChange((bundle) => void seen.push(bundle.generation));
    let arrive = (): void => undefined;
    delay = new Promise((resolve) => {
      arrive = resolve;
    });
    const late = holder.refresh();
    const add = async (bundle: PkiBundle): Promise<PkiBundle> => (await addCommandRoot(bundle, { rotationId: 'r1', now: 1 })).bundle;
    const { generation } = await holder.update(add);
    arrive();
    assert.equal((await late).generation, generation);
    assert.equal(holder.current().generation, generation);
    assert.deepEqual(seen, [generation]);
    holder.close();
  });
});
