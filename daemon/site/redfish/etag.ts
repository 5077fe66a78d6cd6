/**
 * Which If-Match to try next on a PATCH. Controllers demand it (428, or 412 without), give tags in doubled quotes, give weak tags
 * that they refuse to take back, and some refuse every tag they gave (M63, M64). So: verbatim, a weak one as a strong one, none.
 */
export type IfMatch = string | null;

/** A tag as it should have been sent: some quote it twice. */
export function tidyTag(tag: string): string {
  const inner = /^(W\/)?"*([^"]*)"*$/.exec(tag.trim());
  return inner === null ? tag.trim() : `${inner[1] ?? ''}"${inner[2] ?? ''}"`;
}

/** In the order in which they are tried while the answer is 412 or 428; null: the header is left out. */
export function ifMatchLadder(tag: string | null): readonly IfMatch[] {
  if (tag === null) return [null, '*'];
  const tidy = tidyTag(tag);
  const strong = tidy.replace(/^W\//, '');
  return [...new Set<IfMatch>([tidy, strong, null])];
}
