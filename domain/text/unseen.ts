/**
 * Characters that a screen obeys or does not show: with them a line reads as something else than what is stored. One set for all who
 * write what a stranger said, a terminal, a page, a document or the judge of a reason; each writes them in its own way.
 */

/** Controls, formats (zero width, direction), lone surrogates, private use, line and paragraph separators: inside of a character class. */
export const unseenClasses = String.raw`\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}`;

const all = new RegExp(`[${unseenClasses}]`, 'gu');
const allButLineFeed = new RegExp(String.raw`(?!\n)[${unseenClasses}]`, 'gu');

const hex = (character: string): string => (character.codePointAt(0) ?? 0).toString(16);

/** "U+202E". */
export const codePointName = (character: string): string => `U+${hex(character).toUpperCase().padStart(4, '0')}`;

/** "\u{202e}", as a program would write it. */
export const codePointEscape = (character: string): string => `\\u{${hex(character)}}`;

export interface UnseenOptions {
  /** Line feeds stay as they are: the text may have several lines. */
  readonly lines: boolean;
}

/** The text with each of them as `write` has it. */
export const showUnseen = (text: string, write: (character: string) => string, { lines }: UnseenOptions): string =>
  text.replace(lines ? allButLineFeed : all, write);

/** The first of them, or null: of a text that may have several lines. */
export function findUnseen(text: string): { readonly character: string; readonly index: number } | null {
  const index = text.search(allButLineFeed);
  return index === -1 ? null : { character: String.fromCodePoint(text.codePointAt(index) ?? 0), index };
}
