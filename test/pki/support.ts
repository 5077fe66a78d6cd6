/** What the tests of the bundle, envelopes, trust and enrolment share: one deployment, one clock, one way to expect an error. */
import assert from 'node:assert/strict';
import { type Code, ControlError } from '../../domain/errors.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';

export const now = Date.UTC(2026, 0, 15, 12);
export const trustDomain = 'compute.example.com';
export const secret = 'a secret of thirty-two characters at least';

let made: Promise<PkiBundle> | undefined;

/** One bundle for the whole run: it is frozen, and a new one takes 14 key pairs. */
export const sharedBundle = (): Promise<PkiBundle> => {
  made ??= createBundle({ trustDomain, now });
  return made;
};

/** Expects a ControlError with this code, this reason and a message that matches. */
export const refusal =
  (code: Code, reason: string, message: RegExp) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof ControlError, String(error));
    assert.equal(error.code, code, error.message);
    assert.equal(error.details['reason'], reason, error.message);
    assert.match(error.message, message);
    return true;
  };

/** The JSON of a bundle, open for a hand that changes it. */
export type OpenDocument = any;

/** Changes the JSON of a bundle file and writes it again. */
export function edited(text: string, change: (document: OpenDocument) => void): string {
  const document: OpenDocument = JSON.parse(text);
  change(document);
  return JSON.stringify(document);
}
