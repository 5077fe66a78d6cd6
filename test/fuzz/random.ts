/** Numbers that a seed decides: a run is repeated by its seed. */
export interface Random {
  /** 0 ≤ n < limit, whole. */
  below(limit: number): number;
  chance(oneIn: number): boolean;
  pick<T>(list: readonly T[]): T;
  bytes(length: number): Uint8Array;
}

export function createRandom(seed: number): Random {
  let state = (seed ^ 0x9e3779b9) >>> 0 || 1;
  const next = (): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
  for (let warm = 0; warm < 8; warm += 1) next();
  const below = (limit: number): number => (limit <= 1 ? 0 : next() % limit);
  return {
    below,
    chance: (oneIn) => below(oneIn) === 0,
    pick: (list) => list[below(list.length)] as never,
    bytes: (length) => Uint8Array.from({ length }, () => next() & 0xff),
  };
}
