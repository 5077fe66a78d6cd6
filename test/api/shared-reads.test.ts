import assert from 'node:assert/strict';
import { sharingReads } from '../../api/shared-reads.ts';

describe('one read for many', () => {
  const setUp = () => {
    const open: { resolve: (value: number) => void; reject: (error: Error) => void }[] = [];
    const ask = sharingReads(() => new Promise<number>((resolve, reject) => void open.push({ resolve, reject })));
    const settle = () => new Promise<void>((resolve) => void setImmediate(resolve));
    return { open, ask, settle };
  };

  it('WID-015 a thousand who ask while one read is under way share the next, and none is answered from before his question', async () => {
    const { open, ask, settle } = setUp();
    const first = ask();
    await settle();
    assert.equal(open.length, 1);
    const others = Array.from({ length: 1_000 }, () => ask());
    await settle();
    assert.equal(open.length, 1, 'one at a time');
    open[0]?.resolve(1);
    assert.equal(await first, 1);
    await settle();
    assert.equal(open.length, 2);
    open[1]?.resolve(2);
    assert.deepEqual(new Set(await Promise.all(others)), new Set([2]));
    const later = ask();
    await settle();
    open[2]?.resolve(3);
    assert.equal(await later, 3, 'nothing is kept');
  });

  it('a read that fails fails those who share it, and the next is another one', async () => {
    const { open, ask, settle } = setUp();
    const both = [ask(), ask()];
    await settle();
    open[0]?.reject(new Error('away'));
    for (const one of both) await assert.rejects(one, /away/);
    const next = ask();
    await settle();
    open[1]?.resolve(4);
    assert.equal(await next, 4);
  });
});
