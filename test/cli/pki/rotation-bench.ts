/** What the tests of rotate-command-root share: a sealed bundle in a folder of its own, and a deployment of given facts. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { createBundle, encodeBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { now, secret, trustDomain } from '../../pki/support.ts';
import { deploymentOf, type Facts, openFacts } from './facts.ts';
import { type Bench, createBench, type Run } from './harness.ts';

export interface RotationBench {
  bench: Bench;
  /** null: no database. */
  facts: Facts | null;
  stage(name: string, ...flags: string[]): Promise<Run>;
  file(): string;
  /** After `--stage add`, published as version 7 and held by everybody. */
  added(): Promise<PkiBundle>;
  switched(): Promise<PkiBundle>;
}

/** Call inside a describe: it sets the hooks. */
export function useRotationBench(): RotationBench {
  let fresh: string;
  const test: RotationBench = {
    bench: undefined as unknown as Bench,
    facts: null,
    stage: (name, ...flags) => {
      test.bench.deployment = test.facts === null ? null : deploymentOf(test.facts, test.bench.now);
      return test.bench.run('pki', 'rotate-command-root', '--stage', name, ...flags);
    },
    file: () => readFileSync(test.bench.path('pki.json'), 'utf8'),
    added: async () => {
      assert.equal((await test.stage('add')).exitCode, 0);
      test.facts = openFacts(test.bench.bundle(), 7);
      return test.bench.bundle();
    },
    switched: async () => {
      await test.added();
      assert.equal((await test.stage('switch')).exitCode, 0);
      return test.bench.bundle();
    },
  };
  before(async () => {
    fresh = encodeBundle(await createBundle({ trustDomain, now }), { secret });
  });
  beforeEach(() => {
    test.bench = createBench();
    test.facts = null;
    writeFileSync(test.bench.path('pki.json'), fresh);
  });
  afterEach(() => test.bench.close());
  return test;
}
