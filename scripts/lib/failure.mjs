/** An error with what to do about it: the scripts' own `error:` and `hint:` lines, before any dependency is there. */
export class SetupError extends Error {
  /** @param {string} message @param {string} hint @param {{ exit?: number, cause?: unknown }} [options] */
  constructor(message, hint, options = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SetupError';
    this.hint = hint;
    this.exit = options.exit ?? 3;
  }
}

/** Runs a script's main function; a failure leaves two lines and an exit code, never a stack of ours.
 * @param {() => Promise<void>} run */
export async function runScript(run) {
  try {
    await run();
  } catch (error) {
    const known = error instanceof SetupError;
    process.stderr.write(`error: ${known ? error.message : (error?.stack ?? error)}\n`);
    process.stderr.write(`hint: ${known ? error.hint : 'this is a fault of ours: the lines above say where'}\n`);
    process.exitCode = known ? error.exit : 70;
  }
}
