import type { OperatorPorts } from '../ports.ts';
import { recordedActorOf } from '../principal.ts';
import { type Route, route } from '../route.ts';
import * as schemas from '../secret-schemas.ts';

/** A path has slashes in it: it stands in the body. */
export const secretRoutes = ({ secrets }: OperatorPorts): Route[] => [
  route({
    method: 'post',
    path: '/v1/secrets',
    summary: 'Keep a value as the next version of a secret; it is sealed, and no route gives it back',
    body: schemas.setSecret,
    answer: schemas.setSecretAnswer,
    status: 201,
    handle: async ({ body: { path, value, actor }, principal }) => ({
      path,
      version: await secrets.set({ path, value: Buffer.from(value, 'base64'), actor: recordedActorOf(principal, actor) }),
    }),
  }),
  route({
    method: 'get',
    path: '/v1/secrets',
    summary: 'List the secrets in order of path: versions, never values',
    query: schemas.secretsPage,
    answer: schemas.secrets,
    handle: async ({ query }) => {
      const found = await secrets.list(query);
      return { secrets: found, next: found.length < query.limit ? null : (found.at(-1)?.path ?? null) };
    },
  }),
  route({
    method: 'post',
    path: '/v1/secrets/delete',
    summary: 'Forget every version of a secret; its next one has a number that was not used',
    body: schemas.deleteSecret,
    answer: schemas.deletedSecret,
    handle: async ({ body: { path, actor }, principal }) => {
      await secrets.delete({ path, actor: recordedActorOf(principal, actor) });
      return { path };
    },
  }),
];
