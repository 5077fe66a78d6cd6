/**
 * One row a route: what it takes, what it answers, and the function that does it. The same rows mount the handlers, check
 * the input and write the OpenAPI document, so none of the three can drift from the others.
 */
import type { z } from 'zod';
import { ControlError } from '../domain/errors.ts';
import type { Permission, Principal } from './principal.ts';

export interface RouteInput<B, Q> {
  readonly params: Readonly<Record<string, string>>;
  readonly body: B;
  readonly query: Q;
  /** Who asks; may do what the route is for, unless that is decided inside. Whose a thing is, is asked by the handler. */
  readonly principal: Principal;
}

export interface RouteSpec<B extends z.ZodType, Q extends z.ZodType, R extends z.ZodType> {
  readonly method: 'get' | 'post';
  /** Express form: /v1/nodes/:id */
  readonly path: string;
  readonly summary: string;
  readonly body?: B;
  readonly query?: Q;
  readonly answer: R;
  /** Default: deployment.operate, with all tenants. `decided-inside`: the handler asks, at the tenant of what is asked for. */
  readonly permission?: Permission | 'decided-inside';
  /** Of the body; default: json-body.ts. */
  readonly maxBytes?: number;
  /** 200 unless it starts something. */
  readonly status?: 200 | 201 | 202;
  readonly handle: (input: RouteInput<z.output<B>, z.output<Q>>) => Promise<z.input<R>>;
}

export interface Route {
  readonly method: 'get' | 'post';
  readonly path: string;
  readonly summary: string;
  readonly body: z.ZodType | null;
  readonly query: z.ZodType | null;
  readonly answer: z.ZodType;
  readonly status: number;
  readonly permission: Permission | 'decided-inside';
  /** null: the usual bound. */
  readonly maxBytes: number | null;
  readonly handle: (input: { params: Record<string, string>; body: unknown; query: unknown; principal: Principal }) => Promise<unknown>;
}

/** Checks the types of one row, then forgets them. */
export function route<B extends z.ZodType, Q extends z.ZodType, R extends z.ZodType>(spec: RouteSpec<B, Q, R>): Route {
  const { permission = 'deployment.operate', maxBytes = null } = spec;
  return {
    permission,
    maxBytes,
    method: spec.method,
    path: spec.path,
    summary: spec.summary,
    body: spec.body ?? null,
    query: spec.query ?? null,
    answer: spec.answer,
    status: spec.status ?? 200,
    handle: async ({ params, body, query, principal }) =>
      spec.handle({
        params,
        principal,
        body: parseWith(spec.body, body, 'body') as z.output<B>,
        query: parseWith(spec.query, query, 'query') as z.output<Q>,
      }),
  };
}

/** @throws INVALID_INPUT naming every field at fault with what was given */
export function parseWith(schema: z.ZodType | undefined, value: unknown, what: string): unknown {
  if (schema === undefined) return undefined;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map((issue) => ({ path: issue.path.join('.'), message: issue.message }));
  const list = problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ');
  throw new ControlError('INVALID_INPUT', `the ${what} does not fit: ${list}`, { details: { reason: 'bad-input', problems } });
}
