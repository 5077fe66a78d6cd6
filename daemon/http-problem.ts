/** How the daemon's own HTTP servers say what is wrong: a line for a person at a console, JSON for a program. A cause never goes out. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { codeOf, errorTable, isControlError } from '../domain/errors.ts';

/** @param server whose fault an unexpected error is, in words: "the boot server" */
export function sendProblem(
  response: ServerResponse,
  error: unknown,
  { server, headers = {} }: { readonly server: string; readonly headers?: OutgoingHttpHeaders },
): void {
  const code = codeOf(error);
  const message = isControlError(error) && code !== 'INTERNAL' ? error.message : `the request failed by a fault of ${server}`;
  const body = Buffer.from(`${JSON.stringify({ code, message, details: isControlError(error) ? error.details : {} })}\n`);
  // What was not read of the request would stand before the next one.
  const own = { 'content-type': 'application/problem+json', 'content-length': body.length, connection: 'close' };
  response.writeHead(errorTable[code].http, { ...headers, ...own }).end(body);
}
