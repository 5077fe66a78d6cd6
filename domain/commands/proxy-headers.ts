/** Headers of a relayed request that are nobody's to write, or nobody's to write in the open: for the machine that judges and for profiles. */
/** Of the connection, not of the request: ours to say. Two readers that disagree about them read two requests. */
export const headersOfConnection: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'via',
]);

/** A value of these is a secret: it stands in a command by reference or not at all (SEC-001). */
export const secretHeaders: ReadonlySet<string> = new Set([
  'authorization',
  'cookie',
  'x-auth-token',
  'x-api-key',
  'api-key',
  'x-api-token',
]);

/** In lower case, as headers are compared. */
export const isHeaderOfConnection = (name: string): boolean => headersOfConnection.has(name.toLowerCase());
export const isSecretHeader = (name: string): boolean => secretHeaders.has(name.toLowerCase());
