/**
 * The operator listener: JSON over HTTP for people's tools, loopback by default, behind the operator token or an OIDC access token.
 *
 * Threat model: whoever reaches the port. Nothing is read before the bearer is checked; bodies are bounded before they are
 * parsed; unknown fields and paths are refused; no answer is cached, framed or sniffed. What it does not do: it signs nothing, and behind
 * the operator token it does not authenticate the person (the actor in a body is the bearer holder's claim, and audited as that).
 */
import express, { type Express, type NextFunction, type Request, type Response } from 'express';
import { ControlError, errorTable } from '../domain/errors.ts';
import type { Log } from '../runtime/log.ts';
import { type CodecEndpoint, createCodecRouter } from './codec.ts';
import type { ConsolePorts } from './console/ports.ts';
import { createConsoleRouter } from './console/router.ts';
import { createIdentity, type Identity } from './identity.ts';
import { readJsonBody } from './json-body.ts';
import { createOpenApi } from './openapi.ts';
import type { OperatorPorts } from './ports.ts';
import { assertPermission, type Principal } from './principal.ts';
import { problemType, toProblem } from './problem.ts';
import type { Route } from './route.ts';
import { batchRoutes } from './routes/batches.ts';
import { commandRoutes } from './routes/commands.ts';
import { enrolmentRoutes } from './routes/enrolments.ts';
import { joinRoutes } from './routes/joins.ts';
import { machineRoutes } from './routes/machines.ts';
import { nodeRoutes } from './routes/nodes.ts';
import { overviewRoutes } from './routes/overview.ts';
import { secretRoutes } from './routes/secrets.ts';
import { siteRoutes } from './routes/sites.ts';
import { sshRoutes } from './routes/ssh.ts';
import { tenantRoutes } from './routes/tenants.ts';
import { tokenRoutes } from './routes/tokens.ts';
import { tunnelRoutes } from './routes/tunnels.ts';
import { workloadRoutes } from './routes/workload.ts';
import { createWorkloadRouter, type WorkloadDocuments } from './workload-documents.ts';

export interface OperatorAppOptions {
  readonly ports: OperatorPorts;
  readonly bearer: string;
  /** Who a bearer is; default: the operator token alone. */
  readonly identity?: Identity;
  /** Absent: no pages are served. */
  readonly console?: ConsolePorts;
  readonly version: string;
  readonly log: Pick<Log, 'info' | 'warn' | 'error'>;
  /** Absent: the codec endpoint is off. */
  readonly codec?: CodecEndpoint;
  /** Absent: this deployment issues no workload tokens, and publishes nothing. */
  readonly workload?: WorkloadDocuments;
  /** Called once a request, for metrics. */
  readonly observe?: (request: { route: string; status: number; seconds: number }) => void;
}

export const operatorRoutes = (ports: OperatorPorts): Route[] => [
  ...tokenRoutes(ports),
  ...joinRoutes(ports),
  ...enrolmentRoutes(ports),
  ...nodeRoutes(ports),
  ...sshRoutes(ports),
  ...commandRoutes(ports),
  ...batchRoutes(ports),
  ...tenantRoutes(ports),
  ...secretRoutes(ports),
  ...machineRoutes(ports),
  ...siteRoutes(ports),
  ...overviewRoutes(ports),
  ...workloadRoutes(ports),
  ...tunnelRoutes(ports),
];

export function createOperatorApp(options: OperatorAppOptions): Express {
  const { ports, bearer, version, identity = createIdentity({ bearer, oidc: null }) } = options;
  const routes = operatorRoutes(ports);
  const openApi = createOpenApi(routes, { title: 'Better Compute operator API', version });
  const app = express();
  app.disable('x-powered-by').disable('etag').set('query parser', 'simple').set('case sensitive routing', true);
  app.use(secureAnswer);
  app.get('/openapi.json', (_request, response) => void response.json(openApi));
  if (options.codec !== undefined) app.use('/codec', createCodecRouter(options.codec));
  if (options.workload !== undefined) app.use(createWorkloadRouter(options.workload));
  if (options.console !== undefined) app.use('/console', createConsoleRouter(options.console));
  app.use((request, response, next) => {
    identity.authenticate(request.headers.authorization).then((principal) => {
      response.locals['principal'] = principal;
      next();
    }, next);
  });
  for (const route of routes) app[route.method](route.path, handlerOf(route, options));
  app.use((request) => {
    throw new ControlError('NOT_FOUND', `nothing is at ${request.method} ${request.path}`, { details: { reason: 'unknown-path' } });
  });
  app.use(answerProblem(options.log));
  return app;
}

function secureAnswer(_request: Request, response: Response, next: NextFunction): void {
  response.set({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff', 'content-security-policy': "default-src 'none'" });
  next();
}

const handlerOf =
  (route: Route, { ports, observe }: OperatorAppOptions) =>
  async (request: Request, response: Response): Promise<void> => {
    const startedAt = ports.now();
    response.on('finish', () => observe?.({ route: route.path, status: response.statusCode, seconds: (ports.now() - startedAt) / 1_000 }));
    const principal = response.locals['principal'] as Principal;
    // Before the body: whoever may not do it is not read.
    if (route.permission !== 'decided-inside') assertPermission(principal, route.permission);
    const body = route.body === null ? undefined : await readJsonBody(request, route.maxBytes ?? undefined);
    const answer = await route.handle({ params: request.params as Record<string, string>, body, query: { ...request.query }, principal });
    // The answer is checked like the input: a field that the document does not name never leaves.
    response.status(route.status).json(route.answer.parse(answer));
  };

/** The last handler of an app; express knows it by its four parameters. */
export const answerProblem =
  (log: Pick<Log, 'info' | 'warn' | 'error'>) =>
  // eslint-disable-next-line max-params -- express tells an error handler by its four parameters
  (error: unknown, request: Request, response: Response, next: NextFunction): void => {
    if (response.headersSent) return next(error);
    const problem = toProblem(isUriError(error) ? badUri(request) : error);
    const level = problem.status >= 500 ? 'error' : 'info';
    log[level]({ err: error, method: request.method, path: request.path, status: problem.status }, 'request refused');
    if (errorTable[problem.code].retryable) response.set('retry-after', '2');
    response.status(problem.status).type(problemType).send(JSON.stringify(problem));
  };

const isUriError = (error: unknown): boolean => error instanceof URIError || (error as { status?: unknown } | null)?.status === 400;
const badUri = (request: Request): ControlError =>
  new ControlError('INVALID_INPUT', `the address ${request.originalUrl.slice(0, 200)} does not decode`, {
    details: { reason: 'bad-address' },
  });
