/**
 * One read for many who ask at once. Each gets the result of a read that began after he asked, and at most one runs at a time: a
 * crowd costs as much as one reader after another, and nobody is answered from before his question. Nothing is kept.
 */
export function sharingReads<T>(read: () => Promise<T>): () => Promise<T> {
  let running: Promise<unknown> | null = null;
  let next: Promise<T> | null = null;

  const readNext = async (): Promise<T> => {
    await running?.catch(() => undefined);
    next = null;
    const mine = read();
    running = mine;
    try {
      return await mine;
    } finally {
      if (running === mine) running = null;
    }
  };
  return () => (next ??= readNext());
}
