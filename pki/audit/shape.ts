/**
 * A few combinators that say what a decoded JSON value must look like and collect every place where it does not
 * ("parse, don't validate"): enough for signed documents, without a schema library inside the trust code.
 */
export interface Problem {
  readonly path: string;
  readonly message: string;
}

/** Pushes a problem for each place that does not fit; pushes nothing when all fits. */
export type Shape = (value: unknown, path: string, problems: Problem[]) => void;

const leaf =
  (what: string, fits: (value: unknown) => boolean): Shape =>
  (value, path, problems) => {
    if (!fits(value)) problems.push({ path, message: `is not ${what}` });
  };

export const text = (maxLength: number): Shape =>
  leaf(`a string of at most ${maxLength} characters`, (value) => typeof value === 'string' && value.length <= maxLength);
export const count: Shape = leaf('a whole number', (value) => Number.isSafeInteger(value) && (value as number) >= 0);
export const sha256Hex: Shape = leaf('64 lower-case hex digits', (value) => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value));
export const oneOf = (values: readonly string[]): Shape => leaf(`one of ${values.join(', ')}`, (value) => values.includes(value as string));

export const nullable =
  (shape: Shape): Shape =>
  (value, path, problems) => {
    if (value !== null) shape(value, path, problems);
  };

export const listOf =
  (shape: Shape): Shape =>
  (value, path, problems) => {
    if (!Array.isArray(value)) return void problems.push({ path, message: 'is not a list' });
    for (const [index, item] of value.entries()) shape(item, `${path}[${index}]`, problems);
  };

/** Exactly these keys: one more or one less is a problem. */
export const record =
  (fields: Readonly<Record<string, Shape>>): Shape =>
  (value, path, problems) => {
    if (value === null || typeof value !== 'object' || Array.isArray(value))
      return void problems.push({ path, message: 'is not an object' });
    const given = value as Record<string, unknown>;
    for (const key of Object.keys(given)) {
      if (!Object.hasOwn(fields, key)) problems.push({ path: join(path, key), message: 'is not a known field' });
    }
    for (const [key, shape] of Object.entries(fields)) {
      if (Object.hasOwn(given, key)) shape(given[key], join(path, key), problems);
      else problems.push({ path: join(path, key), message: 'is missing' });
    }
  };

const join = (path: string, key: string): string => (path === '' ? key : `${path}.${key}`);
