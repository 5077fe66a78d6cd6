import assert from 'node:assert/strict';
import { bytesText, progressText } from '../../cli/progress.ts';
import { type CommandProgress, ratePerSecond, remainingMs } from '../../domain/commands/progress.ts';

const now = 10_000_000;
const at = (over: Partial<CommandProgress> = {}): CommandProgress => ({
  done: 48_200_000_000,
  total: 1_000_000_000_000,
  note: 'writing zeros',
  at: now,
  firstDone: 0,
  firstAt: now - 200_000,
  ...over,
});

describe('how far a command is, for people', () => {
  it('says bytes in three digits', () => {
    const said = [0, 999, 1_000, 1_214, 12_140, 121_400, 999_999, 1e9, 1.5e12, 2 ** 53].map(bytesText);
    assert.deepEqual(said, ['0 B', '999 B', '1.00 kB', '1.21 kB', '12.1 kB', '121 kB', '1000 kB', '1.00 GB', '1.50 TB', '9.01 PB']);
  });

  it('tells amount, rate, what is left and the note', () => {
    const said = (over: Partial<CommandProgress>, kind = 'disk.wipe'): string => progressText(kind, at(over), now);
    assert.equal(said({}), '48.2 GB of 1.00 TB (4 %), 241 MB/s, 1 h 5 min left: writing zeros');
    assert.equal(said({ total: 0, note: '' }), '48.2 GB, 241 MB/s');
    assert.equal(said({ firstAt: now, firstDone: 48_200_000_000 }), '48.2 GB of 1.00 TB (4 %): writing zeros', 'one word tells no rate');
    assert.equal(said({ done: 3, total: 8, firstDone: 0, note: '' }, 'diag.disks'), '3 of 8 (37 %), 5 min 33 s left');
    const late = at({ at: now - 90_000, firstAt: now - 290_000 });
    assert.equal(progressText('disk.wipe', late, now), '48.2 GB of 1.00 TB (4 %), 241 MB/s, last heard 1 min 30 s ago: writing zeros');
  });

  it('never promises an end that cannot be told', () => {
    assert.equal(remainingMs(at({ done: 0 }), now), null);
    assert.equal(remainingMs(at({ total: 0 }), now), null);
    assert.equal(remainingMs(at({ total: 1 }), now), null, 'more is done than there was');
    assert.equal(remainingMs(at({ at: now - 60_001 }), now), null, 'silent for long');
    assert.equal(ratePerSecond(at({ done: 5, firstDone: 9 })), null);
  });
});
