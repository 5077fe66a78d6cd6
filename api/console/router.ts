/**
 * The console: pages for people who decide, rendered here, without a script.
 *
 * Threat model: a page of another site, a stored reason, a shared screen. The bearer lies in a cookie that no script can read and no
 * other site can send along; nothing under /console changes anything, so a forged request gains nothing; every value is
 * escaped (html.ts) and the policy forbids scripts, frames and foreign sources besides. What it does not do: sign, approve, cancel.
 */
import express, { type Request, type Response, Router } from 'express';
import { ControlError } from '../../domain/errors.ts';
import { isMachineState } from '../../domain/metal/life-cycle.ts';
import { toProblem } from '../problem.ts';
import { renderBatch, renderBatches, renderLogin } from './batch-page.ts';
import { type Html, html } from './html.ts';
import { renderPage, styleSheet } from './layout.ts';
import { renderMachine, renderMachines } from './machine-page.ts';
import type { ConsolePorts, ConsoleReader } from './ports.ts';

const cookieName = 'bc_console';
const listed = 200;
const refreshSeconds = 10;

/** `form-action` is not covered by the default: a page may post to us alone. */
const policy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

export function createConsoleRouter(ports: ConsolePorts): Router {
  const router = Router({ caseSensitive: true });
  router.use((_request, response, next) => {
    response.set({ 'content-security-policy': policy, 'referrer-policy': 'no-referrer', 'cross-origin-opener-policy': 'same-origin' });
    next();
  });
  router.get('/style.css', (_request, response) => void response.type('css').set('cache-control', 'max-age=300').send(styleSheet));
  router.get('/login', (_request, response) => send(response, { title: 'Sign in', body: renderLogin(null) }));
  router.post('/login', express.urlencoded({ extended: false, limit: '16kb', parameterLimit: 4 }), login(ports));
  router.get(
    '/',
    signedIn(ports, async (reader) => ({ title: 'Batches', body: renderBatches(await reader.listBatches(listed)) })),
  );
  router.get(
    '/batches/:id',
    signedIn(ports, async (reader, request) => {
      const id = String(request.params['id']);
      const { batch, overview } = await reader.getBatch(id);
      return { title: `Batch ${id}`, body: renderBatch(batch, overview, ports.now()) };
    }),
  );
  router.get(
    '/machines',
    signedIn(ports, async (reader, request) => {
      const asked = request.query['state'];
      const state = isMachineState(asked) ? asked : null;
      const { machines, counts } = await reader.listMachines({ state, limit: listed });
      return { title: 'Machines', body: renderMachines(machines, counts, { now: ports.now(), state }) };
    }),
  );
  router.get(
    '/machines/:id',
    signedIn(ports, async (reader, request) => {
      const id = String(request.params['id']);
      const asked = request.query['run'];
      const { machine, run } = await reader.getMachine(id, typeof asked === 'string' ? asked : null);
      return { title: `Machine ${id}`, body: renderMachine(machine, run, ports.now()) };
    }),
  );
  return router;
}

interface Page {
  readonly title: string;
  readonly body: Html;
}

const send = (
  response: Response,
  page: Page,
  more: { readonly status?: number; readonly who?: string; readonly refresh?: boolean } = {},
): void =>
  void response
    .status(more.status ?? 200)
    .type('html')
    .send(renderPage({ ...page, who: more.who ?? null, refreshSeconds: more.refresh === true ? refreshSeconds : null }));

/** The token is tried before it is kept: a wrong one is told at once. */
const login =
  (ports: ConsolePorts) =>
  async (request: Request, response: Response): Promise<void> => {
    const { token } = (request.body ?? {}) as { token?: unknown };
    try {
      if (typeof token !== 'string' || !/^[\x21-\x7e]{1,8192}$/.test(token.trim()))
        throw new ControlError('UNAUTHENTICATED', 'this is no bearer token', { details: { reason: 'no-credential' } });
      await ports.authenticate(token.trim());
      response.cookie(cookieName, token.trim(), { httpOnly: true, sameSite: 'strict', path: '/console', secure: request.secure });
      response.redirect(303, '/console');
    } catch (error) {
      const problem = toProblem(error);
      send(response, { title: 'Sign in', body: renderLogin(problem.detail) }, { status: problem.status });
    }
  };

type Render = (reader: ConsoleReader, request: Request) => Promise<Page>;

const signedIn =
  (ports: ConsolePorts, render: Render) =>
  async (request: Request, response: Response): Promise<void> => {
    const bearer = cookieOf(request);
    if (bearer === null) return response.redirect(303, '/console/login');
    let who: string | undefined;
    try {
      const reader = await ports.authenticate(bearer);
      who = reader.name;
      send(response, await render(reader, request), { who, refresh: true });
    } catch (error) {
      const problem = toProblem(error);
      if (problem.status === 401) return response.redirect(303, '/console/login');
      const body = html`<h1>Nothing to show</h1><p class="problem">${problem.detail}</p><p class="muted">${problem.hint}</p>`;
      send(response, { title: 'Nothing to show', body }, { status: problem.status, ...(who === undefined ? {} : { who }) });
    }
  };

function cookieOf({ headers }: Request): string | null {
  const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim());
  const found = pairs.find((pair) => pair.startsWith(`${cookieName}=`))?.slice(cookieName.length + 1);
  if (found === undefined || found === '') return null;
  try {
    return decodeURIComponent(found);
  } catch {
    return null;
  }
}
