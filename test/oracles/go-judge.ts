/** The program under test/oracles/go as a judge. */
import { findGoJudge } from '../../scripts/engines/go-judge.mjs';
import { JudgingProgram } from './program.ts';
import { nameTheSkip } from './verification.ts';

export interface FoundJudge {
  readonly judge: JudgingProgram | null;
  /** Why there is none. */
  readonly why: string;
}

/** Go's crypto/x509 always names the issuer's key by its identifier. */
const makes: ConstructorParameters<typeof JudgingProgram>[1] = (chain) => chain.every(({ aki }) => aki === 'key');

export async function findGo(): Promise<FoundJudge> {
  const found = await findGoJudge({ fetch: false });
  return 'path' in found ? { judge: new JudgingProgram([found.path], makes), why: '' } : { judge: null, why: found.why };
}

/** Describes tests that ask the program; skipped by name where it is not to be had. */
export function describeWithGo(name: string, tests: (judge: () => JudgingProgram) => void): void {
  describe(`oracle: ${name}`, function () {
    this.timeout(60_000);
    let judge: JudgingProgram | null = null;
    before(async function () {
      this.timeout(6 * 60_000);
      const found = await findGo();
      ({ judge } = found);
      if (judge === null) nameTheSkip(this, found.why);
    });
    tests(() => judge as JudgingProgram);
  });
}
