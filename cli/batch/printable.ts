/**
 * What a stranger wrote, as a terminal may show it (BAT-056). Everything on an approver's screen comes from a control plane that may lie, so
 * nothing of it reaches the terminal that could move the cursor, turn the direction, hide, or pass for something else:
 *
 *   - control, format, private and unassigned characters are written as \u{…}; a line feed too
 *   - letters that look like Latin ones (Cyrillic, Greek, fullwidth, mathematical …) are written as \u{…} where they stand in one word
 *     with Latin letters, and named in a warning wherever they stand
 *   - long texts lose their middle, never their end
 */
import { codePointEscape, codePointName, unseenClasses } from '../../domain/text/unseen.ts';

/** Not shown as they are: what no screen shows, and here also unassigned characters, spaces but the space, fillers, piled-up marks. */
const hidden = new RegExp(String.raw`[${unseenClasses}\p{Cn}\u115f\u1160\u3164\uffa0\u2800]|(?! )\p{Zs}|(?<=\p{M})\p{M}`, 'gu');

const foreign = String.raw`\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}\p{Script=Coptic}\p{Script=Lisu}\uff01-\uff5e\u{1d400}-\u{1d7ff}\u2100-\u214f`;
const lookAlike = new RegExp(`[${foreign}]`, 'gu');
const word = /\S+/g;
const latin = /[A-Za-z0-9]/;

/** Safe to print, in one line. A backslash of the text is doubled, so that what was escaped can be told from what was written. */
export const printable = (text: string): string =>
  text
    .replaceAll('\\', '\\\\')
    .replace(word, (one) => (latin.test(one) ? one.replace(lookAlike, codePointEscape) : one))
    .replace(hidden, codePointEscape);

/** Cut in the middle to at most `most` characters; what is left out is counted. */
export function shortened(text: string, most = 80): string {
  const characters = Array.from(text);
  if (characters.length <= most) return text;
  const side = Math.floor((most - 12) / 2);
  const left = characters.length - 2 * side;
  return `${characters.slice(0, side).join('')}…${left} more…${characters.slice(-side).join('')}`;
}

/** Printable and short: a value in a line. */
export const shown = (text: string, most = 80): string => shortened(printable(text), most);

const most = 8;

/** What a reader should know about a text: the letters that are not what they look like, and what was hidden in it. */
export function suspicions(text: string): readonly string[] {
  const names = (found: readonly string[]): string => {
    const distinct = [...new Set(found)].map(codePointName);
    return distinct.length <= most ? distinct.join(', ') : `${distinct.slice(0, most).join(', ')} and ${distinct.length - most} more`;
  };
  const looks = text.match(lookAlike) ?? [];
  const hides = (text.match(hidden) ?? []).filter((character) => character !== '\n');
  return [
    ...(looks.length === 0 ? [] : [`holds letters that look like others: ${names(looks)}`]),
    ...(hides.length === 0 ? [] : [`holds characters that a terminal does not show: ${names(hides)}`]),
  ];
}

/** Letters and digits that many fonts draw alike. */
const alike: readonly (readonly [RegExp, string])[] = [
  [/rn/g, 'm'],
  [/vv/gi, 'w'],
  [/[lI|!]/g, '1'],
  [/[oO]/g, '0'],
  [/[sS]/g, '5'],
  [/[B]/g, '8'],
  [/[zZ]/g, '2'],
  [/_/g, '-'],
];

const skeleton = (text: string): string => alike.reduce((left, [from, to]) => left.replace(from, to), text);

/** Names that differ in their bytes and hardly on a screen, each group once. */
export function lookAlikes(names: Iterable<string>): readonly (readonly string[])[] {
  const groups = new Map<string, Set<string>>();
  for (const name of names) {
    const key = skeleton(name);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, new Set([name]));
    else group.add(name);
  }
  return [...groups.values()].filter(({ size }) => size > 1).map((group) => [...group].sort());
}
