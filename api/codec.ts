/**
 * The codec endpoint for the Temporal UI and CLI: it decrypts workflow payloads for whoever may ask. Off unless the
 * deployment turns it on.
 *
 * Threat model: a page in the operator's browser that is not the Temporal UI, and anything on the network. Access is by the
 * operator's bearer, or by loopback, which a browser could be tricked into (DNS rebinding, cross-site requests): so the Host
 * must be a loopback name and an Origin, when there is one, must be listed. It holds the codec key and no other.
 */
import { type NextFunction, type Request, type Response, Router } from 'express';
import { ControlError } from '../domain/errors.ts';
import type { CodecDirection, CodecHandlers } from '../runtime/codec-http.ts';
import { assertBearer } from './bearer.ts';
import { readJsonBody } from './json-body.ts';

export interface CodecEndpoint {
  readonly handlers: CodecHandlers;
  readonly access: 'bearer' | 'loopback';
  /** Exact origins of Temporal UIs. */
  readonly origins: readonly string[];
  readonly bearer: string;
}

/** Histories are long: the UI decodes a page of one at once. */
const maxBytes = 16 * 1024 * 1024;

export function createCodecRouter(endpoint: CodecEndpoint): Router {
  const router = Router({ caseSensitive: true });
  router.use((request, response, next) => allowOrigin(endpoint, request, response) || next());
  router.use((request, _response, next) => {
    assertAccess(endpoint, request);
    next();
  });
  for (const direction of ['encode', 'decode'] as const) router.post(`/${direction}`, handle(endpoint.handlers, direction));
  return router;
}

const handle =
  (handlers: CodecHandlers, direction: CodecDirection) =>
  async (request: Request, response: Response, _next: NextFunction): Promise<void> => {
    response.json(await handlers.handle(direction, await readJsonBody(request, maxBytes)));
  };

/** Answers a preflight; true when that was all. @throws PERMISSION_DENIED for an origin that is not listed */
function allowOrigin({ origins }: CodecEndpoint, request: Request, response: Response): boolean {
  const { origin } = request.headers;
  if (origin === undefined) return false;
  if (!origins.includes(origin)) {
    throw new ControlError('PERMISSION_DENIED', `the origin ${origin.slice(0, 200)} may not use the codec endpoint`, {
      details: { reason: 'origin' },
    });
  }
  response.set({ 'access-control-allow-origin': origin, vary: 'origin', 'access-control-allow-credentials': 'true' });
  if (request.method !== 'OPTIONS') return false;
  response.set({
    'access-control-allow-methods': 'POST',
    'access-control-allow-headers': 'authorization, content-type, x-namespace, authorization-extras, caller-type',
    'access-control-allow-private-network': 'true',
    'access-control-max-age': '600',
  });
  response.status(204).end();
  return true;
}

function assertAccess({ access, bearer }: CodecEndpoint, request: Request): void {
  if (access === 'bearer') return assertBearer(request.headers.authorization, bearer);
  if (isLoopbackAddress(request.socket.remoteAddress) && isLoopbackName(request.headers.host)) return;
  throw new ControlError('PERMISSION_DENIED', 'the codec endpoint answers this host only, by a loopback name', {
    details: { reason: 'not-loopback' },
  });
}

const isLoopbackAddress = (address = ''): boolean => /^(?:::ffff:)?127\.\d{1,3}\.\d{1,3}\.\d{1,3}$|^::1$/.test(address);
const isLoopbackName = (host = ''): boolean => /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/.test(host);
