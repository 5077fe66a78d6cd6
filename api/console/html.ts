/**
 * HTML that nothing can be injected into: a template writes its own text as it stands and escapes every value, unless the value is a
 * piece of HTML that this module made.
 *
 * What a person reads before signing must be what is stored: characters that a screen hides, or that turn a line around, are written
 * out by their code points.
 */
import { ControlError } from '../../domain/errors.ts';
import { codePointName, showUnseen } from '../../domain/text/unseen.ts';

export interface Html {
  readonly html: string;
}

type Value = Html | string | number | readonly Value[] | null;

const made = new WeakSet<object>();

const make = (text: string): Html => {
  const piece = Object.freeze({ html: text });
  made.add(piece);
  return piece;
};

const escapes: Readonly<Record<string, string>> = Object.freeze({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' });

/** As text of an element or a quoted attribute. */
export const escapeHtml = (text: string): string =>
  showUnseen(text, (character) => `⟨${codePointName(character)}⟩`, { lines: true }).replace(
    /[&<>"']/g,
    (found) => escapes[found] as string,
  );

function written(value: Value): string {
  if (value === null) return '';
  if (typeof value === 'string' || typeof value === 'number') return escapeHtml(String(value));
  if ('html' in value) {
    if (made.has(value)) return value.html;
    throw new ControlError('INTERNAL', 'a page was given an object that only looks like HTML');
  }
  return value.map(written).join('');
}

/** A tagged template. null writes nothing, a list one after another. */
export const html = (parts: TemplateStringsArray, ...values: readonly Value[]): Html =>
  make(parts.reduce((text, part, at) => text + written(values[at - 1] ?? null) + part));
