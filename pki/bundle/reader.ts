/**
 * Reads the fields of one JSON object by name and kind. A field of the wrong kind is noted and read as an empty value, so
 * that the caller goes on and every problem is reported; `refuseUnknown` then notes the fields nobody asked for.
 */
import type { Json } from './canonical.ts';
import type { Problems } from './problems.ts';

export class Reader {
  readonly #path: string;
  readonly #value: Readonly<Record<string, Json>>;
  readonly #problems: Problems;
  readonly #asked = new Set<string>();

  constructor(path: string, value: Readonly<Record<string, Json>>, problems: Problems) {
    this.#path = path;
    this.#value = value;
    this.#problems = problems;
  }

  raw(name: string): Json | undefined {
    this.#asked.add(name);
    return Object.hasOwn(this.#value, name) ? this.#value[name] : undefined;
  }

  literal<T extends string | number>(name: string, expected: T): T {
    if (this.raw(name) !== expected) this.#wrong(name, `must be ${JSON.stringify(expected)}`);
    return expected;
  }

  oneOf<const T extends string>(name: string, allowed: readonly T[]): T {
    const found = allowed.find((candidate) => candidate === this.raw(name));
    if (found === undefined) this.#wrong(name, `must be one of ${allowed.join(', ')}`);
    return found ?? (allowed[0] as T);
  }

  text(name: string): string {
    const value = this.possiblyEmptyText(name);
    if (value === '' && this.raw(name) === '') this.#wrong(name, 'must not be empty');
    return value;
  }

  possiblyEmptyText(name: string): string {
    const value = this.raw(name);
    if (typeof value === 'string') return value;
    this.#wrong(name, 'must be text');
    return '';
  }

  texts(name: string): readonly string[] {
    const value = this.raw(name);
    if (Array.isArray(value) && value.length > 0 && value.every((item): item is string => typeof item === 'string')) return value;
    this.#wrong(name, 'must be a list of texts with at least one');
    return [];
  }

  count(name: string, least: number): number {
    const value = this.raw(name);
    // -0 and 0 are one number but two bytes on disk; nothing here is negative.
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && !Object.is(value, -0)) return value;
    this.#wrong(name, `must be a whole number of at least ${least}`);
    return least;
  }

  nullableCount(name: string): number | null {
    return this.raw(name) === null ? null : this.count(name, 0);
  }

  flag(name: string): boolean {
    const value = this.raw(name);
    if (typeof value === 'boolean') return value;
    this.#wrong(name, 'must be true or false');
    return false;
  }

  list<T>(name: string, read: (reader: Reader) => T): readonly T[] {
    const value = this.raw(name);
    if (!Array.isArray(value)) {
      this.#wrong(name, 'must be a list');
      return [];
    }
    return value.map((item: Json, index) => {
      const reader = this.#inner(`${name}[${index}]`, item);
      const parsed = read(reader);
      reader.refuseUnknown();
      return parsed;
    });
  }

  object(name: string): Reader {
    return this.#inner(name, this.raw(name));
  }

  /** null when the field is absent. */
  optionalObject(name: string): Reader | null {
    return this.raw(name) === undefined ? null : this.object(name);
  }

  /** null when the field is there and null. */
  nullableObject(name: string): Reader | null {
    return this.raw(name) === null ? null : this.object(name);
  }

  refuseUnknown(): void {
    for (const name of Object.keys(this.#value)) {
      if (!this.#asked.has(name)) this.#wrong(name, 'is not a field of a key bundle');
    }
  }

  #inner(name: string, value: Json | undefined): Reader {
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    if (!isObject) this.#wrong(name, value === undefined ? 'is missing' : 'must be an object');
    return new Reader(this.#at(name), isObject ? (value as Record<string, Json>) : {}, this.#problems);
  }

  #wrong(name: string, problem: string): void {
    this.#problems.add(this.#at(name), problem);
  }

  #at(name: string): string {
    return this.#path === 'the file' ? name : `${this.#path}.${name}`;
  }
}
