/** Bytes as they come, cut into lines. A line over the bound is dropped as it arrives, so no input makes this hold more. */

/** More than any case of any set; a certificate has 16 KiB, a revocation list some hundred. */
export const maxLineBytes = 8 * 1_048_576;

/** A line without its end; null for one over the bound. What follows the last line end is a line when it is not empty. */
export async function* readLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array | null> {
  let held: Uint8Array[] = [];
  let size = 0;
  const take = (): Uint8Array | null => {
    const line = size > maxLineBytes ? null : Buffer.concat(held);
    [held, size] = [[], 0];
    return line;
  };
  const hold = (part: Uint8Array): void => {
    size += part.length;
    if (size > maxLineBytes) held = [];
    else held.push(part);
  };
  for await (const chunk of chunks) {
    let from = 0;
    for (let at = chunk.indexOf(0x0a); at >= 0; at = chunk.indexOf(0x0a, from)) {
      hold(chunk.subarray(from, at));
      from = at + 1;
      yield take();
    }
    hold(chunk.subarray(from));
  }
  if (size > 0) yield take();
}
