/** A plain HTTP client that comes from an address of one's choice: on Linux all of 127.0.0.0/8 is this machine. */
import { type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly body: Record<string, unknown>;
}

export interface HttpAsk {
  readonly from: string;
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
}

export function httpFrom(url: string, { from, method = 'GET', headers = {} }: HttpAsk): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers, localAddress: from, agent: false }, (response) => {
      const pieces: Buffer[] = [];
      response.on('data', (piece: Buffer) => void pieces.push(piece));
      response.on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(pieces).toString('utf8');
        const isJson = /json/.test(response.headers['content-type'] ?? '');
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text,
          body: isJson ? (JSON.parse(text) as Record<string, unknown>) : {},
        });
      });
    });
    sent.on('error', reject);
    sent.end();
  });
}

/** A session token of a metadata service, as a client in an instance fetches it. */
export async function metadataSession(base: string, from: string, ttlSeconds = 60): Promise<string> {
  const answer = await httpFrom(`${base}/v1/token`, { from, method: 'PUT', headers: { 'metadata-token-expiry-seconds': ttlSeconds } });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
  return answer.text;
}
