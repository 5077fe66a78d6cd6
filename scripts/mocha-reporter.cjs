/**
 * What people read is mocha's own spec reporter; what scripts/test.mjs reads is one line of counts, and of what failed, in the
 * file that BC_TEST_COUNTS names. CommonJS, because mocha loads reporters that way.
 */
const { writeFileSync } = require('node:fs');
const Mocha = require('mocha');

class CountingReporter extends Mocha.reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    runner.once('end', () => {
      const { passes, failures, pending } = this.stats;
      const failed = this.failures.map((test) => ({
        title: test.fullTitle(),
        file: test.file,
        error: String(test.err?.stack ?? test.err),
      }));
      writeFileSync(process.env.BC_TEST_COUNTS, JSON.stringify({ passes, failures, pending, failed }));
    });
  }
}

module.exports = CountingReporter;
