/** The OpenAPI 3.1 document of the routes: generated, never written by hand. */
import { z } from 'zod';
import { errorTable } from '../domain/errors.ts';
import type { Route } from './route.ts';

const problemSchema = z.object({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  detail: z.string(),
  code: z.enum(Object.keys(errorTable) as [string, ...string[]]),
  message: z.string(),
  hint: z.string(),
  details: z.record(z.string(), z.unknown()),
});

export function createOpenApi(routes: readonly Route[], info: { title: string; version: string }): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method]: operation(route) };
  }
  return {
    openapi: '3.1.0',
    info,
    security: [{ operator: [] }],
    paths,
    components: {
      securitySchemes: { operator: { type: 'http', scheme: 'bearer' } },
      schemas: { Problem: schemaOf(problemSchema, 'output') },
    },
  };
}

function operation(route: Route): Record<string, unknown> {
  return {
    summary: route.summary,
    operationId: `${route.method} ${route.path}`.replace(/[^A-Za-z0-9]+/g, '-').replace(/-$/, ''),
    parameters: [...pathParameters(route.path), ...queryParameters(route.query)],
    ...(route.body === null
      ? {}
      : { requestBody: { required: true, content: { 'application/json': { schema: schemaOf(route.body, 'input') } } } }),
    responses: {
      [route.status]: { description: 'done', content: { 'application/json': { schema: schemaOf(route.answer, 'output') } } },
      default: {
        description: 'what went wrong',
        content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
      },
    },
  };
}

const pathParameters = (path: string): unknown[] =>
  [...path.matchAll(/:(\w+)/g)].map((match) => ({ name: match[1], in: 'path', required: true, schema: { type: 'string' } }));

function queryParameters(query: z.ZodType | null): unknown[] {
  if (query === null) return [];
  const { properties = {}, required = [] } = schemaOf(query, 'input') as { properties?: Record<string, unknown>; required?: string[] };
  return Object.entries(properties).map(([name, schema]) => ({ name, in: 'query', required: required.includes(name), schema }));
}

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): Record<string, unknown> {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Record<string, unknown>;
  return rest;
}
