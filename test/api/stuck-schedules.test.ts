import assert from 'node:assert/strict';
import { stuckSchedule } from '../../api/stuck-schedules.ts';

describe('a schedule that does not run', () => {
  const running = { paused: false, note: '' };

  it('is not told while it runs', () => {
    assert.equal(stuckSchedule('bc-resign', running), null);
    assert.equal(stuckSchedule('bc-resign', { ...running, remainingActions: 7 }), null);
  });

  it('is told with the note of whoever paused it, and with what lets it go on', () => {
    assert.deepEqual(stuckSchedule('bc-resign', { paused: true, note: 'change 4711' }), {
      kind: 'workflow',
      subject: 'schedule bc-resign',
      since: null,
      waitsFor: 'someone to let it go on: it is paused (change 4711)',
      help: 'temporal schedule toggle --schedule-id bc-resign --unpause --reason <why>',
    });
  });

  it('is told when it is gone, or has nothing left to do', () => {
    assert.match(stuckSchedule('bc-resign', null)?.waitsFor ?? '', /not there/);
    assert.match(stuckSchedule('bc-resign', { ...running, remainingActions: 0 })?.waitsFor ?? '', /none left/);
  });
});
