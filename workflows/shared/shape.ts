/**
 * Shape checks for everything that reaches a workflow from outside: start input, signals, updates. Anyone who may write to the
 * namespace can send anything, so a parser collects every problem, names the field and the value's kind, and throws one
 * INVALID_INPUT; unknown fields are refused, so that a misspelt one is never taken for absent.
 */
import { maxNodeIdLength } from '../../domain/commands/ids.ts';
import { ControlError } from '../../domain/errors.ts';
import { Undecodable } from './undecodable.ts';

type Fields = Readonly<Record<string, unknown>>;

export const textLimits = Object.freeze({ actor: 128, reason: 1_000, node: maxNodeIdLength } as const);

/** Reads the fields of one message and remembers what is wrong with them. */
export class Shape {
  readonly #what: string;
  readonly #fields: Fields;
  readonly #problems: string[] = [];

  constructor(what: string, value: unknown, known: readonly string[]) {
    this.#what = what;
    this.#fields = isRecord(value) ? value : {};
    if (!isRecord(value)) this.#problems.push(`expected an object with ${known.join(', ')}, got ${kindOf(value)}`);
    for (const name of Object.keys(this.#fields)) {
      if (!known.includes(name)) this.#problems.push(`${clip(name)} is not a known field (known: ${known.join(', ')})`);
    }
  }

  has(name: string): boolean {
    const value = this.#fields[name];
    return value !== undefined && value !== null;
  }

  get(name: string): unknown {
    return this.#fields[name];
  }

  problem(text: string): void {
    this.#problems.push(text);
  }

  /** A text of 1 to `max` characters without control characters; surrounding blanks do not count. */
  text(name: string, max: number): string {
    const value = this.#fields[name];
    if (typeof value !== 'string' || value.trim() === '') {
      this.#problems.push(`${name} must be a text that is not empty, got ${kindOf(value)}`);
      return '';
    }
    if (value.length > max) this.#problems.push(`${name} has ${value.length} characters, at most ${max} are allowed`);
    if (hasControl(value)) this.#problems.push(`${name} contains control characters`);
    return value.trim();
  }

  oneOf<T extends string>(name: string, allowed: readonly T[]): T {
    const value = this.#fields[name];
    if (typeof value === 'string' && (allowed as readonly string[]).includes(value)) return value as T;
    this.#problems.push(`${name} must be one of ${allowed.join(', ')}, got ${typeof value === 'string' ? clip(value) : kindOf(value)}`);
    return allowed[0] as T;
  }

  /** @throws ControlError INVALID_INPUT with every problem found */
  done(): void {
    if (this.#problems.length === 0) return;
    throw new ControlError('INVALID_INPUT', `${this.#what}: ${this.#problems.join('; ')}`, {
      details: { reason: 'bad-shape', problems: this.#problems },
    });
  }
}

/** The actor and the reason that every change by hand carries (H-08). */
export interface Signed {
  readonly actor: string;
  readonly reason: string;
}

export const readSigned = (shape: Shape): Signed => ({
  actor: shape.text('actor', textLimits.actor),
  reason: shape.text('reason', textLimits.reason),
});

export const isRecord = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Undecodable);

export function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (value instanceof Undecodable) return 'a payload that cannot be read';
  if (Array.isArray(value)) return 'a list';
  return value === '' ? 'an empty text' : `a ${typeof value}`;
}

const hasControl = (value: string): boolean => /[\u0000-\u0008\u000b-\u001f\u007f]/.test(value);

/** What people, machines and controllers say is theirs: without what would make Markdown of it, and cut. */
export const plain = (text: string, max = 400): string => clip(text.replace(/[\p{C}`<>[\]*_|\\]/gu, ' '), max);

export const clip = (text: string, max = 40): string => (text.length > max ? `${text.slice(0, max)}…` : text);
