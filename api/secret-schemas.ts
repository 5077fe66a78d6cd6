/** The messages of the routes of secrets. No answer has a field for a value. */
import { z } from 'zod';
import { maxSecretPathLength } from '../domain/secrets/reference.ts';
import { actor, limited } from './schemas.ts';

const path = z
  .string()
  .max(4 * maxSecretPathLength)
  .describe('what stands behind secret://');
const base64 = z.string().refine((text) => Buffer.from(text, 'base64').toString('base64') === text, 'is base64 (RFC 4648, padded)');

export const setSecret = z.strictObject({ path, value: base64.describe('of the bytes'), actor: actor.optional() });
export const setSecretAnswer = z.strictObject({ path: z.string(), version: z.int() });

export const secretsPage = z.strictObject({ prefix: path.default(''), after: path.default(''), limit: limited.shape.limit });
export const secrets = z.strictObject({
  secrets: z.array(
    z.strictObject({ path: z.string(), version: z.int(), createdBy: z.string(), createdAt: z.number().describe('Unix milliseconds') }),
  ),
  next: z.string().nullable().describe('`after` of the next page'),
});

export const deleteSecret = z.strictObject({ path, actor: actor.optional() });
export const deletedSecret = z.strictObject({ path: z.string() });
