/** Collects everything that is wrong with a bundle file, so that an operator repairs it in one go. */
import { ControlError } from '../../domain/errors.ts';

/** Said by every refusal of a bundle: a bundle is never repaired by hand. */
export const restoreIt = 'restore it from a backup';

export const invalidBundle = (message: string, details: Record<string, unknown>, cause?: unknown): ControlError =>
  new ControlError('INVALID_CONFIG', message, { details, ...(cause === undefined ? {} : { cause }) });

export class Problems {
  readonly #found: string[] = [];

  add(path: string, problem: string): void {
    this.#found.push(`${path} ${problem}`);
  }

  /** @throws INVALID_CONFIG (bundle-invalid) when anything was added */
  throwIfAny(): void {
    if (this.#found.length === 0) return;
    const shown = this.#found.length > 5 ? [...this.#found.slice(0, 5), `and ${this.#found.length - 5} more`] : this.#found;
    throw invalidBundle(`the key bundle is not valid (${shown.join('; ')}): ${restoreIt}`, {
      reason: 'bundle-invalid',
      problems: [...this.#found],
    });
  }
}
