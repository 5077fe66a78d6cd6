import assert from 'node:assert/strict';
import type { SessionReport } from '../../gateway/session/presence.ts';
import { SectionState } from '../../proto/index.ts';
import { frameOf, opened } from './session-core-support.ts';

describe('what a session says of its desired state', () => {
  it('SKEW-038 passes on what is not applied of the desired state, bounded, and nothing of a machine that holds none', () => {
    const { core, fx } = opened({ trustVersion: 6n });
    fx.clear();
    const status = (value: object): void => core.onFrame(frameOf({ frame: { case: 'status', value } }), 0, fx);
    const [applied, failed, unsupported] = [SectionState.APPLIED, SectionState.FAILED, SectionState.UNSUPPORTED];
    status({
      specGeneration: 4n,
      sections: [
        { section: 'daemon', state: applied },
        { section: 'k8s-join', state: failed, detail: 'a\u0000b'.padEnd(400, 'x') },
        { section: 'field-9', state: unsupported, detail: 'not known' },
        { section: 'access', state: SectionState.UNSPECIFIED, detail: '' },
      ],
    });
    status({ specGeneration: 5n, sections: Array.from({ length: 200 }, (_, at) => ({ section: `s${at}`, state: failed })) });
    status({ specGeneration: 6n, sections: [{ section: 'daemon', state: applied }] });
    status({ sections: [{ section: 'daemon', state: failed }] });
    const reports = (fx.effects as unknown as [string, { report: SessionReport }][]).map(([, { report }]) => report.sections);
    assert.equal(reports[0]?.generation, 4);
    assert.deepEqual(
      reports[0]?.faults.map(({ section, state, detail }) => [section, state, detail.length]),
      [
        ['k8s-join', 'failed', 255],
        ['field-9', 'unsupported', 9],
        ['access', 'failed', 0],
      ],
    );
    assert.equal(reports[1]?.faults.length, 32);
    assert.deepEqual(reports.slice(2), [{ generation: 6, faults: [] }, undefined]);
  });
});
