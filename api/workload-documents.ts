/**
 * The two documents by which anybody verifies workload tokens (WID-011 to WID-016): read anew at every request, for everybody, kept by
 * caches for five minutes. They stand before the bearer on the operator listener; a proxy in front of the issuer's address passes on
 * these two paths and nothing else.
 */
import { type Request, type Response, Router } from 'express';
import { ControlError } from '../domain/errors.ts';
import { discoveryPath, documentHeaders, jwksPath, parseIssuerUrl, type WorkloadIssuer } from '../pki/workload/index.ts';
import { problemType, toProblem } from './problem.ts';
import { sharingReads } from './shared-reads.ts';

export interface WorkloadDocuments {
  readonly issuer: string;
  /** The issuer as it is now: a key that was added a moment ago is in it (WID-015). */
  read(): Promise<WorkloadIssuer>;
}

type Document = (issuer: WorkloadIssuer) => object;

const documents: Readonly<Record<string, Document>> = Object.freeze({
  [discoveryPath]: (issuer) => issuer.discovery(),
  [jwksPath]: (issuer) => issuer.jwks(),
});

/** What either may be asked with. */
const methods = ['GET', 'HEAD'];

export function createWorkloadRouter({ issuer, read }: WorkloadDocuments): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const readShared = sharingReads(read);
  const { path } = parseIssuerUrl(issuer);
  for (const [name, document] of Object.entries(documents)) {
    const at = `${path}${name}`.replace(/[^\w/.-]/g, '\\$&');
    router.all(at, (request, response, next) => {
      if (!methods.includes(request.method)) return refuseMethod(request, response);
      readShared()
        .then((current) => send(request, response, document(current)))
        // Whoever asks is a stranger: what is wrong with our keys or database stands in the log alone.
        .catch((cause: unknown) => next(cannotRead(cause)));
    });
  }
  return router;
}

/** Headers go with the document only: an answer that says what is wrong is kept by nobody. */
function send(request: Request, response: Response, document: object): void {
  const body = JSON.stringify(document);
  response.writeHead(200, { ...documentHeaders, 'content-length': Buffer.byteLength(body) });
  response.end(request.method === 'HEAD' ? undefined : body);
}

const cannotRead = (cause: unknown): ControlError =>
  new ControlError('UNAVAILABLE', "the issuer's documents cannot be read now", { details: { reason: 'documents' }, cause });

function refuseMethod(request: Request, response: Response): void {
  const error = new ControlError('UNSUPPORTED', `${request.method.slice(0, 20)} is not for ${request.path}: GET and HEAD are`, {
    details: { reason: 'method' },
  });
  response
    .status(405)
    .set('allow', methods.join(', '))
    .type(problemType)
    .send(JSON.stringify({ ...toProblem(error), status: 405 }));
}
