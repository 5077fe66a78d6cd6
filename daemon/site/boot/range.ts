/** Which bytes of a file a request wants (RFC 9110, 14): one range, or the whole. */
export type ByteRange =
  | { readonly kind: 'whole' }
  | { readonly kind: 'part'; readonly first: number; readonly last: number }
  /** None of its bytes exist. */
  | { readonly kind: 'beyond' };

const whole: ByteRange = Object.freeze({ kind: 'whole' });

/**
 * @param ifRange the header If-Range, which must be the strong tag of what is there, or the whole is sent
 * @returns the whole for what is no range of bytes, or several of them: a server may ignore both
 */
export function parseRange(
  header: string | undefined,
  { sizeBytes, etag, ifRange }: { sizeBytes: number; etag: string; ifRange: string | undefined },
): ByteRange {
  if (header === undefined || (ifRange !== undefined && ifRange !== etag)) return whole;
  const [, from = '', to = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header.trim()) ?? [];
  if (from !== '') return fromFirst(Number(from), { to, sizeBytes });
  if (to === '') return whole;
  const suffix = Math.min(Number(to), sizeBytes);
  return suffix === 0 ? { kind: 'beyond' } : { kind: 'part', first: sizeBytes - suffix, last: sizeBytes - 1 };
}

function fromFirst(first: number, { to, sizeBytes }: { to: string; sizeBytes: number }): ByteRange {
  if (to !== '' && Number(to) < first) return whole;
  if (first >= sizeBytes) return { kind: 'beyond' };
  return { kind: 'part', first, last: to === '' ? sizeBytes - 1 : Math.min(Number(to), sizeBytes - 1) };
}

/** RFC 9110, 13.1.2: weak comparison, a list, or anything. */
export const matchesTag = (header: string | undefined, etag: string): boolean =>
  header !== undefined && (header.trim() === '*' || header.split(',').some((one) => one.trim().replace(/^W\//, '') === etag));
